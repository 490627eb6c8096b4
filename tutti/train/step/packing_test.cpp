// A packed step learns what the same documents teach as sequences of their own.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include "tutti/base/error.h"
#include "tutti/engine/recorder.h"
#include "tutti/spec/program/program.h"
#include "tutti/train/testing/test_support.h"

namespace tutti::train {
namespace {

using testing::adapted;
using testing::distilled;
using testing::gpt_recipe;
using testing::llama_recipe;
using testing::randomize;
using testing::randomize_teacher;

constexpr int64_t kT = 16;

// Each model, trained whole, by adapters and by a teacher of the other kind.
std::vector<spec::Recipe> packed_recipes() {
  return {gpt_recipe(),
          llama_recipe(),
          adapted(gpt_recipe()),
          adapted(llama_recipe()),
          distilled(gpt_recipe(), llama_recipe().model),
          distilled(llama_recipe(), gpt_recipe().model)};
}

// Micro-batches of `micro` sequences, handed out in order.
struct Batches {
  int64_t micro_rows = 0;
  std::vector<int32_t> tokens, targets, positions, starts;
  int64_t next = 0;

  void add(int32_t token, int32_t target, int64_t position, int64_t start) {
    tokens.push_back(token);
    targets.push_back(target);
    positions.push_back(static_cast<int32_t>(position));
    starts.push_back(static_cast<int32_t>(start));
  }
  void pad() {
    while (tokens.size() % kT != 0) add(0, -1, 0, static_cast<int64_t>(tokens.size()) % kT);
  }
  int64_t sequences() const { return static_cast<int64_t>(tokens.size()) / kT; }
  BatchSource source() {
    return [this] {
      const int64_t at = next;
      next += micro_rows;
      return BatchView{tokens.data() + at, targets.data() + at, at, positions.data() + at,
                       starts.data() + at};
    };
  }
};

// Rows of the documents of each window; the first `masked` targets of a document are ignored.
struct Document {
  int64_t rows = 0, masked = 0;
};
const std::vector<std::vector<Document>>& windows() {
  static const std::vector<std::vector<Document>> all = {{{5, 2}, {1, 0}, {7, 0}, {3, 1}},
                                                         {{16, 9}},
                                                         {{2, 0}, {9, 8}, {4, 0}},
                                                         {{1, 0}, {1, 1}, {6, 0}}};
  return all;
}

void add_documents(Batches& packed, Batches& apart) {
  const uint64_t key = stream_key(3, "documents");
  uint64_t drawn = 0;
  const auto draw = [&] { return static_cast<int32_t>(random_u64(key, drawn++) % 101); };
  for (const auto& window : windows()) {
    int64_t start = 0;
    for (const Document& document : window) {
      int32_t token = draw();
      for (int64_t r = 0; r < document.rows; ++r) {
        const int32_t next = draw();
        const int32_t target = r < document.masked ? -1 : next;
        packed.add(token, target, r, start);
        apart.add(token, target, r, 0);
        token = next;
      }
      start += document.rows;
      apart.pad();
    }
    packed.pad();
  }
}

struct Gradients {
  double loss = 0;
  std::vector<std::vector<double>> tensors;
  std::vector<std::string> names;
};

Gradients gradients_of(spec::Recipe recipe, Batches& batches, int64_t micro) {
  recipe.batch = {batches.sequences(), micro, kT};
  batches.micro_rows = micro * kT;
  batches.next = 0;
  Trainer trainer(recipe);
  trainer.initialize();
  // Small adapters leave f32 no more than rounding in the queries' gradients: with them all keys
  // weigh nearly the same, and what remains are differences of much larger terms.
  const bool wide = recipe.lora.rank > 0 && recipe.precision == spec::Precision::f32;
  randomize(trainer, 7, wide ? 0.4F : 0.1F);
  randomize_teacher(trainer);
  Gradients out;
  out.loss = trainer.gradients(batches.source());
  for (const StateTensor& tensor : trainer.state().gradients()) {
    int64_t count = 1;
    for (const int64_t dim : tensor.shape) count *= dim;
    const auto* values = static_cast<const float*>(tensor.data);
    out.names.push_back(tensor.name);
    out.tensors.emplace_back();
    for (int64_t i = 0; i < count; ++i) {
      out.tensors.back().push_back(trainer.gradient_factor() * static_cast<double>(values[i]));
    }
  }
  return out;
}

// Per tensor ||a - b|| <= tolerance * max(||b||, 1e-3 ||all of b|| / sqrt(tensors)).
void expect_close(const Gradients& a, const Gradients& b, double tolerance) {
  EXPECT_NEAR(a.loss, b.loss, tolerance * std::abs(b.loss));
  double all = 0;
  for (const auto& tensor : b.tensors) {
    for (const double x : tensor) all += x * x;
  }
  const double least = 1e-3 * std::sqrt(all / static_cast<double>(b.tensors.size()));
  EXPECT_GT(all, 0);
  for (size_t t = 0; t < b.tensors.size(); ++t) {
    double error = 0, size = 0;
    for (size_t i = 0; i < b.tensors[t].size(); ++i) {
      const double difference = a.tensors[t][i] - b.tensors[t][i];
      error += difference * difference;
      size += b.tensors[t][i] * b.tensors[t][i];
    }
    EXPECT_LE(std::sqrt(error), tolerance * std::max(std::sqrt(size), least)) << b.names[t];
  }
}

TEST(Packing, GradientsEqualThoseOfDocumentsApart) {
  for (spec::Recipe recipe : packed_recipes()) {
    for (const auto precision : {spec::Precision::f32, spec::Precision::bf16}) {
      SCOPED_TRACE(fmt::format("{} {}", recipe.model.name,
                               precision == spec::Precision::f32 ? "f32" : "bf16"));
      recipe.precision = precision;
      Batches packed, apart;
      add_documents(packed, apart);
      ASSERT_EQ(packed.sequences(), 4);
      ASSERT_EQ(apart.sequences(), 11);
      recipe.data.packing = spec::Packing::none;
      const Gradients want = gradients_of(recipe, apart, 11);
      recipe.data.packing = spec::Packing::documents;
      const double tolerance = precision == spec::Precision::f32 ? 2e-5 : 2e-2;
      for (const int64_t micro : {4, 2, 1}) {
        expect_close(gradients_of(recipe, packed, micro), want, tolerance);
      }
    }
  }
}

// Every target of a step weighs the same, however few its micro-batch has.
TEST(Packing, MeanOverTheTargetsOfTheWholeStep) {
  const spec::Recipe recipe = gpt_recipe();
  Batches packed, apart;
  add_documents(packed, apart);
  const Gradients whole = gradients_of(recipe, apart, 11);
  expect_close(gradients_of(recipe, apart, 1), whole, 2e-5);

  // As the definition says: the mean of the losses of targets, one row at a time.
  double sum = 0;
  int64_t targets = 0;
  spec::Recipe single = recipe;
  single.batch = {1, 1, kT};
  Trainer trainer(single);
  trainer.initialize();
  randomize(trainer, 7, 0.1F);
  apart.micro_rows = kT;
  apart.next = 0;
  const BatchSource source = apart.source();
  for (int64_t i = 0; i < 11; ++i) {
    const EvaluationResult part = trainer.evaluate(source, 1);
    sum += part.loss * static_cast<double>(part.tokens);
    targets += part.tokens;
  }
  EXPECT_EQ(targets, std::count_if(apart.targets.begin(), apart.targets.end(),
                                   [](int32_t target) { return target >= 0; }));
  EXPECT_NEAR(whole.loss, sum / static_cast<double>(targets), 1e-6);
}

TEST(Packing, AStepWithoutTargetsIsRefused) {
  spec::Recipe recipe = gpt_recipe();
  Trainer trainer(recipe);
  trainer.initialize();
  const std::vector<int32_t> tokens(21, 1), targets(21, -1);
  EXPECT_THROW(trainer.step(
                   [&] {
                     return BatchView{tokens.data(), targets.data(), 0};
                   },
                   1e-3, 1),
               Error);
}

// Recorded work: as described but for attention, whose FLOPs follow the sum of len^2 and stay
// below the described bound.
TEST(Packing, RecordedWorkEqualsTheLengthsOfDocuments) {
  for (spec::Recipe recipe : packed_recipes()) {
    for (const auto precision : {spec::Precision::f32, spec::Precision::bf16}) {
      for (const int64_t micro : {4, 2}) {
        recipe.precision = precision;
        recipe.data.packing = spec::Packing::documents;
        recipe.batch = {4, micro, kT};
        SCOPED_TRACE(fmt::format("{} micro {}", recipe.model.name, micro));
        Batches packed, apart;
        add_documents(packed, apart);
        packed.micro_rows = micro * kT;
        Trainer trainer(recipe);
        trainer.initialize();
        randomize_teacher(trainer);
        engine::Recorder recorder;
        trainer.stream().set_recorder(&recorder);
        trainer.step(packed.source(), 1e-3, 1);
        trainer.stream().set_recorder(nullptr);

        double squares = 0;  // rows of padding are documents of one row
        for (size_t row = 0; row < packed.starts.size(); ++row) {
          squares +=
              2 * static_cast<double>(static_cast<int64_t>(row) % kT - packed.starts[row]) + 1;
        }
        using Key = std::tuple<std::string, std::array<int64_t, 6>, double>;
        std::multiset<Key> recorded, described;
        double attention_flops = 0, bound = 0;
        for (const engine::OpRecord& record : recorder.records()) {
          recorded.insert({record.op, record.dims, record.bytes});
          if (std::string(record.op).rfind("attention", 0) == 0) attention_flops += record.flops;
        }
        const spec::Program program = spec::make_program(recipe, spec::tutti_profile());
        for (const spec::Op& op : spec::step_operations(program, spec::make_schedule(recipe), 0)) {
          described.insert({op.name, op.dims, op.bytes});
          EXPECT_EQ(op.bound, std::string(op.name).rfind("attention", 0) == 0);
          if (op.bound) bound += op.flops;
        }
        EXPECT_EQ(recorded, described);
        const auto full = static_cast<double>(4 * kT * kT);
        EXPECT_EQ(attention_flops, bound / full * squares);
        EXPECT_LT(attention_flops, bound);
      }
    }
  }
}

}  // namespace
}  // namespace tutti::train
