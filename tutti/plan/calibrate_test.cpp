#include "tutti/plan/calibrate.h"

#include <gtest/gtest.h>

#include "tutti/base/error.h"
#include "tutti/base/memory_file.h"
#include "tutti/plan/plan_test_support.h"

namespace tutti::plan {
namespace {

const MachineCeilings kCeilings = {1e12, 0.5e12, 50e9, 32e9};
const std::vector<std::string> kSizes = {"batch.global=4", "batch.micro=4", "batch.sequence=256"};

// What a machine of these constants would record of `steps` steps.
RunTrace record(const spec::Recipe& recipe, const catalog::System& system, const Constants& truth,
                int steps) {
  RunTrace trace;
  const std::vector<spec::Op> ops = spec::step_operations(
      spec::make_program(recipe, spec::tutti_profile()), spec::make_schedule(recipe), 0);
  for (int step = 0; step < steps; ++step) {
    double sum = 0;
    for (const spec::Op& op : ops) {
      const double seconds = operation_seconds(op, system, truth, recipe.precision);
      trace.operations.push_back({op.name, op.dims, op.flops, op.bytes, seconds});
      sum += seconds + 2e-6;  // between operations
    }
    trace.step_seconds.push_back(sum);
  }
  return trace;
}

Constants known_machine() {
  Constants truth = assumed_constants();
  truth[Constant::gemm_ratio] = 0.83;
  truth[Constant::gemm_side_count] = 35;
  truth[Constant::gemm_depth_count] = 60;
  truth[Constant::attention_ratio] = 0.41;
  truth[Constant::attention_backward_ratio] = 0.57;
  truth[Constant::memory_ratio] = 1;
  truth[Constant::attention_fill_count] = 0;
  truth[Constant::launch_microseconds] = 0;
  truth.operation_ratios = {{"adamw", 0.7}, {"cross_entropy", 0.15}, {"norm_forward", 1.4}};
  return truth;
}

TEST(Calibrate, RecoversTheConstantsOfAKnownMachine) {
  const catalog::System system = machine_system("known", kCeilings);
  const Constants truth = known_machine();
  const spec::Recipe recipe = recipe_of("gpt2-124m", kSizes);
  const Calibration found = calibrate(record(recipe, system, truth, 3), recipe, system, 0);
  for (const Constant constant :
       {Constant::gemm_ratio, Constant::gemm_side_count, Constant::gemm_depth_count,
        Constant::attention_ratio, Constant::attention_backward_ratio}) {
    EXPECT_NEAR(found.constants[constant] / truth[constant], 1, 0.01)
        << constant_table()[static_cast<size_t>(constant)].name;
  }
  for (const auto& [name, ratio] : truth.operation_ratios) {
    EXPECT_NEAR(found.constants.bandwidth_ratio(name) / ratio, 1, 0.01) << name;
  }
  EXPECT_NEAR(found.constants[Constant::launch_microseconds], 2, 0.02);
  EXPECT_NEAR(found.fitted_step_seconds / found.measured_step_seconds, 1, 0.01);
  EXPECT_LE(found.constants.error, 0.0101);
}

// Constants of one run predict others: sizes, precision, recomputation, another model.
TEST(Calibrate, PredictsOtherRunsOfAKnownMachine) {
  const catalog::System system = machine_system("known", kCeilings);
  const Constants truth = known_machine();
  const spec::Recipe base = recipe_of("gpt2-124m", kSizes);
  const Calibration found = calibrate(record(base, system, truth, 2), base, system, 0);
  const std::vector<std::pair<std::string, std::vector<std::string>>> others = {
      {"gpt2-124m", {"batch.global=1", "batch.micro=1", "batch.sequence=64"}},
      {"gpt2-124m", {"batch.global=8", "batch.micro=8", "batch.sequence=1024"}},
      {"gpt2-124m", {"batch.global=4", "batch.sequence=256", "precision=f32"}},
      {"gpt2-124m", {"batch.global=4", "batch.sequence=256", "recompute=full"}},
      {"gpt2-350m", {"batch.global=2", "batch.micro=1", "batch.sequence=512"}}};
  for (const auto& [model, sizes] : others) {
    const spec::Recipe recipe = recipe_of(model, sizes);
    const RunTrace real = record(recipe, system, truth, 1);
    PipelineSimulator simulator;
    Predictor predictor(system, found.constants, simulator);
    const double predicted = predictor.step(recipe, spec::tutti_profile()).step_seconds;
    EXPECT_NEAR(predicted / real.step_seconds[0], 1, 0.02) << model << " " << sizes[0];
  }
}

// What the process holds beside its arenas does not grow with them.
TEST(Calibrate, MemoryOfTheProcessIsAdded) {
  const catalog::System system = machine_system("known", kCeilings);
  const spec::Recipe base = recipe_of("gpt2-124m", kSizes);
  const auto map = [](const spec::Recipe& recipe) {
    return static_cast<double>(spec::memory_map(recipe).total_bytes());
  };
  const Calibration found =
      calibrate(record(base, system, known_machine(), 2), base, system, map(base) + 150e6);
  EXPECT_NEAR(found.constants[Constant::process_gigabytes], 0.15, 1e-9);
  const spec::Recipe other = recipe_of(
      "gpt2-124m", {"batch.global=8", "batch.micro=8", "batch.sequence=1024", "recompute=full"});
  EXPECT_NEAR(predict_memory(other, spec::tutti_profile(), system, found.constants).bytes,
              map(other) + 150e6, 1);
}

TEST(Calibrate, FilesAreASystemOfTheCatalog) {
  MemoryFileSystem files;
  Constants constants = known_machine();
  constants.name = "here/tutti";
  constants.chip_generation = "here";
  constants.software = "tutti";
  constants.error = 0.03;
  for (const auto& [path, text] :
       machine_files("here", kCeilings, constants, "tutti plan calibrate runs/a", "2026-11-20")) {
    const std::string full = "own/" + path;
    files.create_directories(parent_path(full));
    write_file_atomic(files, full, text);
  }
  const catalog::Catalog catalog = catalog::load_catalog(files, {"own"});
  EXPECT_EQ(catalog.system("here").chip.bf16_flops, 1e12);
  EXPECT_EQ(catalog.system("here").chip.f32_flops, 0.5e12);
  const std::vector<Constants> sets = load_constants(files, {"own"});
  const Constants* found = find_constants(sets, "here", "");
  ASSERT_NE(found, nullptr);
  EXPECT_NEAR(found->bandwidth_ratio("adamw"), 0.7, 1e-9);
  EXPECT_EQ(found->error, 0.03);
}

TEST(Calibrate, TracesOfOthersAreRefused) {
  EXPECT_THROW(parse_trace("{\"traceEvents\": []}", "t"), Error);
  EXPECT_THROW(parse_trace("[]", "t"), Error);
  EXPECT_THROW(
      parse_trace("{\"traceEvents\": [{\"cat\": \"operation\", \"name\": \"gemm\"}]}", "t"), Error);
  const RunTrace trace = parse_trace(
      R"({"traceEvents": [{"cat": "step", "name": "step 3", "ph": "X", "ts": 0, "dur": 10},
          {"cat": "operation", "name": "gemm", "ts": 1, "dur": 4,
           "args": {"dims": [2, 3, 4], "flops": 48, "bytes": 52}}]})",
      "t");
  ASSERT_EQ(trace.operations.size(), 1U);
  EXPECT_DOUBLE_EQ(trace.step_seconds[0], 1e-5);
  EXPECT_EQ(trace.operations[0].dims[2], 4);
}

}  // namespace
}  // namespace tutti::plan
