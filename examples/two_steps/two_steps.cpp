// Trains two steps of a recipe and prints the loss of each.
//
//   two_steps RECIPE RUN [KEY=VALUE...]
//   two_steps recipes/demo.yaml runs/two data.train=mine data.validation=mine-validation
#include <tutti/tutti.h>

#include <cstdio>
#include <string>
#include <vector>

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: two_steps RECIPE RUN [KEY=VALUE...]\n");
    return 2;
  }
  try {
    const std::vector<std::string> overrides(argv + 3, argv + argc);
    tutti::Training training(argv[1], overrides, argv[2]);
    const tutti::TrainingResult result = training.train(2, [](const tutti::TrainingStep& step) {
      std::printf("step %lld: loss %.4f\n", static_cast<long long>(step.step), step.loss);
    });
    std::printf("saved in %s\n", result.checkpoint.c_str());
    return 0;
  } catch (const tutti::TrainingError& error) {
    std::fprintf(stderr, "two_steps: %s\n", error.what());
    return 1;
  }
}
