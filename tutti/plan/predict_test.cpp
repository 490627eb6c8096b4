#include "tutti/plan/predict.h"

#include <gtest/gtest.h>

#include <utility>

#include "tutti/plan/testing/systems.h"

namespace tutti::plan {
namespace {

StepPrediction predict(const spec::Recipe& recipe, const Constants& constants,
                       const std::string& system = "dgx-h100") {
  PipelineSimulator simulator;
  Predictor predictor(shipped().system(system), constants, simulator);
  return predictor.step(recipe, spec::find_profile("megatron-te"));
}

const std::vector<std::string> kLayout = {"batch.global=64", "batch.micro=1", "parallel.tp=4",
                                          "parallel.pp=4",   "parallel.dp=2", "parallel.zero=1"};

TEST(Predict, PartsAddUpToTheStepAndToThePipeline) {
  const StepPrediction step = predict(recipe_of("llama2-70b", kLayout), assumed_constants());
  EXPECT_NEAR(step.split.total(), step.step_seconds, 1e-9);
  EXPECT_GT(step.split.bubble, 0);
  EXPECT_GT(step.split.tp, 0);
  EXPECT_GT(step.mfu_causal, 0.1);
  EXPECT_LT(step.mfu_causal, 0.7);
  EXPECT_LT(step.mfu_causal, step.mfu_square);
  EXPECT_STREQ(step.bottleneck, "matrix products");
}

// Quantization of weights once a step is priced, once.
TEST(Predict, QuantizingWeightsOnceAStepIsPriced) {
  const spec::Recipe recipe =
      recipe_of("llama3.1-8b", {"batch.global=64", "batch.micro=1", "batch.sequence=4096",
                                "parallel.dp=8", "precision=fp8", "device=cuda"});
  const catalog::System& system = shipped().system("dgx-h100");
  const Constants constants = assumed_constants();
  spec::Program program = spec::make_program(recipe, spec::tutti_profile_on(recipe));
  const double priced = price_program(program, recipe, system, constants).ranks[0].update;
  double alone = 0;
  for (const spec::Op& op : program.updates[0].quantize) {
    alone += operation_seconds(op, system, constants, recipe.precision);
  }
  EXPECT_GT(alone, 1e-3);
  program.updates[0].quantize.clear();
  EXPECT_NEAR(price_program(program, recipe, system, constants).ranks[0].update, priced - alone,
              1e-9);
}

// If everything else is free, a step takes its FLOPs over the peak.
TEST(Predict, IdealMachineRunsAtThePeak) {
  Constants ideal = assumed_constants();
  ideal[Constant::gemm_ratio] = ideal[Constant::attention_ratio] =
      ideal[Constant::attention_backward_ratio] = 1;
  ideal[Constant::gemm_side_count] = ideal[Constant::gemm_depth_count] = 0;
  ideal[Constant::launch_microseconds] = ideal[Constant::step_overhead_seconds] = 0;
  catalog::System system = shipped().system("dgx-h100");
  system.chip.memory_bytes_per_second *= 1e9;
  PipelineSimulator simulator;
  Predictor predictor(system, ideal, simulator);
  const spec::Recipe recipe =
      recipe_of("llama3.1-8b", {"batch.global=1", "batch.micro=1", "batch.sequence=8192"});
  const StepPrediction step = predictor.step(recipe, spec::find_profile("megatron-te"));
  // Fused attention recomputes its scores in the backward pass: 7 halves instead of 6.
  EXPECT_GT(step.mfu_causal, 0.93);
  EXPECT_LE(step.mfu_causal, 1.0);
}

TEST(Predict, MoreBandwidthOrFewerFlopsNeverSlowAStep) {
  const spec::Recipe recipe = recipe_of("llama2-70b", kLayout);
  const double base = predict(recipe, assumed_constants()).step_seconds;
  EXPECT_LT(predict(recipe, assumed_constants(), "dgx-b200").step_seconds, base);
  EXPECT_LE(predict(recipe, assumed_constants(), "dgx-h200").step_seconds, base);
  std::vector<std::string> full = kLayout;
  full.emplace_back("recompute=full");
  const StepPrediction recomputed = predict(recipe_of("llama2-70b", full), assumed_constants());
  EXPECT_GT(recomputed.step_seconds, 1.15 * base);
  EXPECT_GT(recomputed.split.recompute, 0);
}

// As in the trainer: frozen weights need no gradient, and only recomputed work counts twice.
TEST(Predict, UtilisationCountsExecutedWork) {
  const auto ratios = [](const std::vector<std::string>& more) {
    std::vector<std::string> overrides = kLayout;
    overrides.insert(overrides.end(), more.begin(), more.end());
    const spec::Recipe recipe = recipe_of("llama2-70b", overrides);
    const StepPrediction step = predict(recipe, assumed_constants());
    EXPECT_NEAR(step.model_flops_per_second_per_chip,
                spec::model_flops_per_step(recipe) / step.step_seconds / 32,
                1e-9 * step.model_flops_per_second_per_chip);
    return std::pair(step.mfu_square / step.mfu_causal,
                     step.hardware_utilisation / step.mfu_square);
  };
  const spec::ModelConfig model = recipe_of("llama2-70b", kLayout).model;
  const auto flops = [&](spec::FlopConvention convention) {
    return spec::flops_per_token(model, model.context, convention);
  };
  const double square = flops(spec::FlopConvention::square);
  const double full = flops(spec::FlopConvention::hardware) / square;
  EXPECT_NEAR(ratios({}).first, square / flops(spec::FlopConvention::causal), 1e-12);
  EXPECT_EQ(ratios({}).second, 1);
  EXPECT_NEAR(ratios({"recompute=full"}).second, full, 1e-12);
  EXPECT_NEAR(ratios({"recompute.mode=full", "recompute.layers=5"}).second,
              1 + (full - 1) * 20 / 80, 1e-12);
  EXPECT_EQ(ratios({"lora.rank=16"}).second, 1);
}

// A ring is as slow as its two farthest neighbours: over several nodes it uses the network, however
// near the next rank is.
TEST(Predict, RingsAndPipelinesOverNodesUseTheNetwork) {
  const auto alone = [](const spec::Op& op, const std::vector<std::string>& overrides) {
    Constants constants = assumed_constants();
    constants[Constant::collective_microseconds] = 0;
    constants[Constant::link_ratio] = constants[Constant::network_ratio] = 1;
    return price_collectives({op}, recipe_of("llama3.1-8b", overrides),
                             shipped().system("dgx-h100"), constants);
  };
  const auto op = [](const char* name, spec::Axis axis, int64_t ranks) {
    spec::Op out;
    out.name = name;
    out.collective = true;
    out.axis = axis;
    out.dims[1] = ranks;
    out.bytes = 1e9;
    return out;
  };
  constexpr double kLink = 1e9 / 450e9;
  constexpr double kNetwork = 1e9 / 50e9;
  const std::vector<std::string> batch = {"batch.global=4", "batch.micro=1"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), batch.begin(), batch.end());
    return more;
  };
  const spec::Op ring8 = op("send", spec::Axis::cp, 8);
  const spec::Op ring16 = op("send", spec::Axis::cp, 16);
  EXPECT_NEAR(alone(ring8, with({"parallel.cp=8"})), kLink, 1e-4);
  EXPECT_NEAR(alone(ring16, with({"parallel.cp=16"})), kNetwork, 1e-4);
  // Stages with stride 2 in a node of eight: four of them are in it, eight are not.
  const spec::Op transfer = op("send", spec::Axis::pp, 2);
  EXPECT_NEAR(alone(transfer, with({"parallel.tp=2", "parallel.pp=4"})), kLink, 1e-4);
  EXPECT_NEAR(alone(transfer, with({"parallel.tp=2", "parallel.pp=8"})), kNetwork, 1e-4);
  // The two copies of a tied embedding are on the first and the last stage.
  const spec::Op tied = op("all_reduce", spec::Axis::pp, 2);
  EXPECT_NEAR(alone(tied, with({"parallel.tp=2", "parallel.pp=4"})), kLink, 1e-4);
  EXPECT_NEAR(alone(tied, with({"parallel.tp=2", "parallel.pp=8"})), kNetwork, 1e-4);
}

// What moves less holds more: a pipeline that moves weights and gradients once a step has them
// whole, and ranks that hold shards move them in every micro-batch.
TEST(Predict, PipelinesHoldWhatTheyDoNotMove) {
  struct Both {
    double seconds = 0;
    double bytes = 0;
  };
  const auto of = [](const char* profile, int64_t zero, int64_t vpp = 1) {
    const spec::Recipe recipe = recipe_of(
        "llama2-70b",
        {"batch.global=128", "batch.micro=1", "parallel.tp=4", "parallel.pp=4", "parallel.dp=4",
         "parallel.vpp=" + std::to_string(vpp), "parallel.zero=" + std::to_string(zero)});
    PipelineSimulator simulator;
    const Constants constants = assumed_constants();
    const catalog::System& system = shipped().system("dgx-h100");
    Predictor predictor(system, constants, simulator);
    const spec::Profile& found = spec::find_profile(profile);
    return Both{predictor.step(recipe, found).step_seconds,
                predict_memory(recipe, found, system, constants).allocated_bytes};
  };
  for (const char* kept : {"megatron-te", "torchtitan"}) {
    const Both first = of(kept, 1);
    for (const int64_t zero : {2, 3}) {
      EXPECT_EQ(of(kept, zero).seconds, first.seconds) << kept << zero;
      EXPECT_EQ(of(kept, zero).bytes, first.bytes) << kept << zero;
    }
  }
  const Both own = of("tutti", 1);
  for (const int64_t zero : {2, 3}) {
    EXPECT_GT(of("tutti", zero).seconds, 1.02 * own.seconds) << zero;
    EXPECT_LT(of("tutti", zero).bytes, 0.9 * own.bytes) << zero;
  }
  // Rounds: with virtual stages only, fewer gradients for more reductions.
  EXPECT_EQ(of("llama3", 2).bytes, of("llama3", 1).bytes);
  EXPECT_EQ(of("llama3", 2).seconds, of("llama3", 1).seconds);
  const Both whole = of("llama3", 1, 10);
  const Both rounds = of("llama3", 2, 10);
  EXPECT_GE(rounds.seconds, whole.seconds);
  // Gradients of 4.4 billion parameters in f32, of which a quarter, a chunk of ten and a layer
  // stay.
  EXPECT_NEAR((whole.bytes - rounds.bytes) / (4 * 4.3e9), 1 - 0.25 - 0.1 - 0.05, 0.03);
  EXPECT_EQ(of("llama3", 3, 10).bytes, rounds.bytes);
}

// From 1,024 to 65,536 GPUs published weak scaling loses several percent.
TEST(Predict, WeakScalingLosesSeveralPercent) {
  const auto step = [](int64_t ranks) { return 10 + host_seconds(10, ranks, assumed_constants()); };
  EXPECT_GT(step(65536) / step(1024), 1.03);
  EXPECT_LT(step(65536) / step(1024), 1.08);
}

TEST(Predict, MemoryIsTheMapPlusTheReserve) {
  const spec::Recipe recipe = recipe_of("llama2-70b", kLayout);
  const spec::Profile& profile = spec::find_profile("megatron-te");
  const MemoryPrediction memory =
      predict_memory(recipe, profile, shipped().system("dgx-h100"), assumed_constants());
  EXPECT_EQ(memory.allocated_bytes,
            static_cast<double>(spec::memory_map(recipe, profile, memory.stage).total_bytes()));
  EXPECT_NEAR(memory.bytes / memory.allocated_bytes, 1.04, 1e-9);
  EXPECT_TRUE(memory.fits);
  // 175 billion parameters with their optimizer state do not fit 32 chips of 80 GB, but of 288.
  EXPECT_TRUE(
      predict_memory(recipe, profile, shipped().system("azure-nd-gb300-v6"), assumed_constants())
          .fits);
}

}  // namespace
}  // namespace tutti::plan
