#include "tutti/plan/calibrate.h"

#include <gtest/gtest.h>

#include "tutti/base/error.h"
#include "tutti/base/testing/memory_file.h"
#include "tutti/plan/testing/systems.h"

namespace tutti::plan {
namespace {

const MachineCeilings kCeilings = {1e12, 0.5e12, 50e9, 32e9};
const std::vector<std::string> kSizes = {"batch.global=4", "batch.micro=4", "batch.sequence=256"};

// The trace of `steps` steps that a machine with these constants records.
RunTrace record(const spec::Recipe& recipe, const catalog::System& system, const Constants& truth,
                int steps) {
  RunTrace trace;
  const std::vector<spec::Op> ops = spec::step_operations(
      spec::make_program(recipe, spec::tutti_profile()), spec::make_schedule(recipe), 0);
  for (int step = 0; step < steps; ++step) {
    double sum = 0;
    for (const spec::Op& op : ops) {
      if (op.collective) continue;  // not an operation of the recorder
      const double seconds = operation_seconds(op, system, truth, recipe.precision);
      trace.operations.push_back(
          {op.name, op.dims, op.flops, op.bytes, seconds, static_cast<size_t>(step)});
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
  const Calibration found =
      calibrate(record(recipe, system, truth, 3), recipe, "known", kCeilings, 0);
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
  const Calibration found = calibrate(record(base, system, truth, 2), base, "known", kCeilings, 0);
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

// A machine on which two ranks of one thread are more efficient than two threads of one rank, sum
// gradients at a rate of their own and wait for each other, and whose f32 products are half as
// fast.
struct TwoRankMachine {
  MachineCeilings ceilings = {1.1e12, 0.6e12, 50e9, 32e9, 12e9};
  catalog::System system = machine_system("known", ceilings, 2);
  Constants truth = known_machine();
  static constexpr double kWaiting = 0.004;

  TwoRankMachine() {
    truth[Constant::gemm_ratio] = 0.9;
    truth[Constant::gemm_side_count] = 14;
    truth[Constant::dp_overlap_ratio] = 0;
    truth[Constant::link_ratio] = 1;
    truth.operation_ratios = {{"adamw", 0.9}, {"cross_entropy", 0.18}};
  }
  RankRecording recording(const spec::Recipe& recipe, int steps) const {
    RankRecording out;
    out.recipe = recipe;
    out.trace = record(recipe, system, truth, steps);
    const spec::Program program = spec::make_program(recipe, spec::tutti_profile());
    out.communication_seconds = price_program(program, recipe, system, truth).ranks[0].reduce;
    out.exposed_seconds = out.communication_seconds;
    out.waiting_seconds = kWaiting;
    return out;
  }
};

TEST(Calibrate, PredictsRanksThatShareAKnownMachine) {
  const TwoRankMachine machine;
  const spec::Recipe alone = recipe_of("gpt2-124m", kSizes);
  const catalog::System whole = machine_system("known", kCeilings);
  const Calibration one =
      calibrate(record(alone, whole, known_machine(), 3), alone, "known", kCeilings, 0);
  // Recorded with four layers and small batches; predicted with all of them and larger ones.
  std::vector<std::string> pair = {"batch.global=4", "batch.micro=2", "batch.sequence=256",
                                   "parallel.dp=2", "model.layers=4"};
  const RankRecording run = machine.recording(recipe_of("gpt2-124m", pair), 3);
  Calibration two = calibrate_ranks(run, "known", one);
  EXPECT_EQ(two.constants.chip_generation, "known-2");
  EXPECT_NEAR(two.ceilings.link_bytes_per_second / 12e9, 1, 0.01);
  EXPECT_NEAR(two.fitted_step_seconds / two.measured_step_seconds, 1, 0.01);
  pair.emplace_back("precision=f32");
  const spec::Recipe f32 = recipe_of("gpt2-124m", pair);
  calibrate_precision(machine.recording(f32, 2).trace, f32, "known", two);
  EXPECT_NEAR(two.ceilings.f32_flops * two.constants[Constant::gemm_ratio],
              0.9 * machine.ceilings.f32_flops, 0.005e12);

  const catalog::System system = machine_system("known", two.ceilings, 2);
  PipelineSimulator simulator;
  Predictor predictor(system, two.constants, simulator);
  for (const char* more :
       {"precision=bf16", "precision=f32", "recompute=full", "parallel.zero=1"}) {
    const spec::Recipe recipe = recipe_of(
        "gpt2-124m",
        {"batch.global=16", "batch.micro=8", "batch.sequence=512", "parallel.dp=2", more});
    const RankRecording real = machine.recording(recipe, 1);
    const double seconds = real.trace.step_seconds[0] + real.exposed_seconds;
    const double predicted = predictor.step(recipe, spec::tutti_profile()).step_seconds;
    // Waiting was a share of a shorter step.
    const double share = TwoRankMachine::kWaiting / run.trace.step_seconds[0];
    EXPECT_NEAR(predicted / (seconds * (1 + share)), 1, 0.02) << more;
  }
}

// A precision without a ceiling cannot be expressed as a share of one.
TEST(Calibrate, PrecisionsWithoutACeilingAreRefused) {
  const catalog::System system = machine_system("known", kCeilings);
  spec::Recipe recipe = recipe_of("gpt2-124m", kSizes);
  const RunTrace trace = record(recipe, system, known_machine(), 1);
  recipe.precision = spec::Precision::fp8;
  EXPECT_THROW(calibrate(trace, recipe, "known", kCeilings, 0), Error);
}

// Memory of the process outside its arenas does not grow with them.
TEST(Calibrate, MemoryOfTheProcessIsAdded) {
  const catalog::System system = machine_system("known", kCeilings);
  const spec::Recipe base = recipe_of("gpt2-124m", kSizes);
  const auto map = [](const spec::Recipe& recipe) {
    return static_cast<double>(spec::memory_map(recipe).total_bytes());
  };
  const Calibration found = calibrate(record(base, system, known_machine(), 2), base, "known",
                                      kCeilings, map(base) + 150e6);
  EXPECT_NEAR(found.constants[Constant::process_gigabytes], 0.15, 1e-9);
  const spec::Recipe other = recipe_of(
      "gpt2-124m", {"batch.global=8", "batch.micro=8", "batch.sequence=1024", "recompute=full"});
  EXPECT_NEAR(predict_memory(other, spec::tutti_profile(), system, found.constants).bytes,
              map(other) + 150e6, 1);
}

// A disturbed minority of the steps, or a disturbed peak measurement, changes nothing.
TEST(Calibrate, DisturbedStepsAndPeaksDoNotCount) {
  const catalog::System system = machine_system("known", kCeilings);
  const Constants truth = known_machine();
  const spec::Recipe recipe = recipe_of("gpt2-124m", kSizes);
  RunTrace trace = record(recipe, system, truth, 9);
  for (const size_t disturbed : {size_t{1}, size_t{2}, size_t{6}, size_t{8}}) {
    trace.step_seconds[disturbed] *= 2.5;
    for (TracedOperation& operation : trace.operations) {
      if (operation.step == disturbed) operation.seconds *= 2.5;
    }
  }
  MachineCeilings slow = kCeilings;
  slow.bf16_flops *= 0.4;  // another program ran during the measurement
  const Calibration found = calibrate(trace, recipe, "known", slow, 0);
  EXPECT_NEAR(found.ceilings.bf16_flops, 0.83 * kCeilings.bf16_flops, 0.01e12);
  EXPECT_NEAR(found.constants[Constant::gemm_ratio], 1, 1e-9);
  EXPECT_NEAR(found.fitted_step_seconds / record(recipe, system, truth, 1).step_seconds[0], 1,
              0.01);
  EXPECT_GT(found.spread, kQuietSpread);  // still causes a warning
}

TEST(Calibrate, FilesAreASystemOfTheCatalog) {
  MemoryFileSystem files;
  Constants constants = known_machine();
  constants.name = "here/tutti";
  constants.chip_generation = "here";
  constants.software = "tutti";
  constants.error = 0.03;
  for (const auto& [path, text] : machine_files(
           "here", kCeilings, 2, constants, "tutti plan calibrate runs/\"a: \\", "2026-11-20")) {
    const std::string full = "own/" + path;
    files.create_directories(parent_path(full));
    write_file_atomic(files, full, text);
  }
  const catalog::Catalog catalog = catalog::load_catalog(files, {"own"});
  EXPECT_EQ(catalog.system("here").chip.bf16_flops, 1e12);
  EXPECT_EQ(catalog.system("here").chip.f32_flops, 0.5e12);
  // Two ranks have half of everything; their sum reads or writes 2.5 times the buffer.
  const catalog::System& both = catalog.system("here-2");
  EXPECT_EQ(both.largest_chips, 2);
  EXPECT_EQ(both.chip.bf16_flops, 0.5e12);
  EXPECT_EQ(both.chip.memory_bytes_per_second, 25e9);
  EXPECT_EQ(both.chip.generation, "here");
  EXPECT_NEAR(ring_all_reduce_seconds({&both, 1, 1, 1}, {2, 1}, 1e9), 2.5e9 / 25e9, 1e-5);
  const std::vector<Constants> sets = load_constants(files, {"own"});
  const Constants* found = find_constants(sets, "here", "");
  ASSERT_NE(found, nullptr);
  EXPECT_NEAR(found->bandwidth_ratio("adamw"), 0.7, 1e-9);
  EXPECT_EQ(found->error, 0.03);
}

// Measured ranks have their own chip generation, and so their own constants.
TEST(Calibrate, MeasuredRanksHaveConstantsOfTheirOwn) {
  MemoryFileSystem files;
  MeasuredRanks two = {2, kCeilings, known_machine()};
  two.ceilings.bf16_flops = 1.2e12;
  two.ceilings.link_bytes_per_second = 17e9;
  two.constants.name = "here-2/tutti";
  two.constants.chip_generation = "here-2";
  two.constants.software = "tutti";
  two.constants.error = 0.02;
  Constants one = known_machine();
  one.name = "here/tutti";
  one.chip_generation = "here";
  one.software = "tutti";
  one.error = 0.03;
  for (const auto& [path, text] :
       machine_files("here", kCeilings, 4, one, "x", "2026-11-20", {two})) {
    const std::string full = "own/" + path;
    files.create_directories(parent_path(full));
    write_file_atomic(files, full, text);
  }
  const catalog::Catalog catalog = catalog::load_catalog(files, {"own"});
  EXPECT_EQ(catalog.system("here-2").chip.bf16_flops, 0.6e12);
  EXPECT_EQ(catalog.system("here-2").tiers[0].bytes_per_second, 17e9);
  EXPECT_EQ(catalog.system("here-4").chip.bf16_flops, 0.25e12);
  const std::vector<Constants> sets = load_constants(files, {"own"});
  const auto error_of = [&](const char* system) {
    return find_constants(sets, catalog.system(system).chip.generation, "tutti")->error;
  };
  EXPECT_EQ(error_of("here"), 0.03);
  EXPECT_EQ(error_of("here-2"), 0.02);
  EXPECT_EQ(error_of("here-4"), 0.03);  // not measured: as for one rank
}

TEST(Calibrate, TracesOfOtherProgramsAreRefused) {
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
  const RunTrace waited = parse_trace(
      R"({"traceEvents": [{"cat": "step", "ts": 0, "dur": 10, "args": {"waited_seconds": 3e-6}},
          {"cat": "operation", "name": "gemm", "ts": 1, "dur": 4,
           "args": {"dims": [2, 3, 4], "flops": 48, "bytes": 52}}]})",
      "t");
  EXPECT_DOUBLE_EQ(waited.step_seconds[0], 7e-6);
  EXPECT_EQ(trace.operations[0].dims[2], 4);
}

}  // namespace
}  // namespace tutti::plan
