// Runs a model on given weights and tokens, for the tests of tests/parity and others that compare
// with PyTorch.
//
//   parity_dump RECIPE.yaml WEIGHTS.safetensors TOKENS.safetensors OUT.safetensors [FOLDER]
//
// WEIGHTS: every parameter by name, F32. TOKENS: `tokens` and `targets`, I32 [S, B, T], where B is
// the recipe's batch.global and T its batch.sequence; optionally `prompt` I32 [P]. OUT: `logits`
// F32 [B*T, V], `loss` F64 [1] and `grad.NAME` F32 of the first batch on the given weights (with
// adapters: only of the adapters), with experts also `balance_loss` and `z_loss` F64 [1]; `losses`
// F64 [S] of S optimizer steps from the given weights with the recipe's learning rate. With
// adapters also `merged.NAME` F32, the given weights with the adapters merged; and the adapters in
// PEFT's format in FOLDER. With `distill`, distill.teacher is a file like WEIGHTS with the
// parameters of distill.model, and OUT has `ce_loss` and `kl_loss` F64 [1], the parts of `loss`.
// With a prompt `greedy` I32 [10]: the tokens of greedy decoding after it, in f32.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/base/file.h"
#include "tutti/checkpoint/huggingface/adapter.h"
#include "tutti/checkpoint/store/safetensors.h"
#include "tutti/model/decode.h"
#include "tutti/spec/recipe/recipe.h"
#include "tutti/train/step/routing.h"
#include "tutti/train/step/trainer.h"

namespace tutti {
namespace {

class TensorFile {
 public:
  explicit TensorFile(const std::string& path) : path_(path), map_(posix_file_system().map(path)) {
    for (checkpoint::SafetensorsTensor& tensor :
         checkpoint::parse_safetensors(map_->bytes(), path).tensors) {
      const std::string name = tensor.name;
      tensors_.emplace(name, std::move(tensor));
    }
  }

  size_t size() const { return tensors_.size(); }

  template <typename T>
  std::vector<T> read(const std::string& name, DType dtype,
                      const std::vector<int64_t>& shape) const {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) fail(ErrorKind::corrupt, "{}: no tensor {}", path_, name);
    const checkpoint::SafetensorsTensor& tensor = found->second;
    if (tensor.dtype != dtype || tensor.shape != shape) {
      fail(ErrorKind::corrupt, "{}: {} is {} {}, expected {} {}", path_, name,
           dtype_name(tensor.dtype), checkpoint::format_shape(tensor.shape), dtype_name(dtype),
           checkpoint::format_shape(shape));
    }
    std::vector<T> values(static_cast<size_t>(tensor.end - tensor.begin) / sizeof(T));
    std::memcpy(values.data(), map_->bytes().data() + tensor.begin, values.size() * sizeof(T));
    return values;
  }

  bool has(const std::string& name) const { return tensors_.count(name) > 0; }

  int64_t first_dimension(const std::string& name) const {
    const auto found = tensors_.find(name);
    if (found == tensors_.end() || found->second.shape.empty()) {
      fail(ErrorKind::corrupt, "{}: no tensor {} with at least one dimension", path_, name);
    }
    return found->second.shape[0];
  }

 private:
  std::string path_;
  std::unique_ptr<MappedFile> map_;
  std::map<std::string, checkpoint::SafetensorsTensor> tensors_;
};

class OutputFile {
 public:
  template <typename T>
  void add(const std::string& name, DType dtype, const std::vector<int64_t>& shape,
           const T* values) {
    tensors_.push_back({.name = name, .dtype = dtype, .shape = shape});
    const auto size = static_cast<size_t>(checkpoint::checked_bytes(dtype, shape));
    data_[name].assign(reinterpret_cast<const char*>(values), size);
  }

  void write(const std::string& path) const {
    const checkpoint::SafetensorsLayout layout = checkpoint::layout_safetensors(tensors_, {});
    const std::unique_ptr<WritableFile> file = posix_file_system().create(path);
    file->append(layout.header.data(), layout.header.size());
    for (const checkpoint::SafetensorsTensor& tensor : layout.tensors) {
      const std::string& bytes = data_.at(tensor.name);
      file->append(bytes.data(), bytes.size());
    }
    file->close();
  }

 private:
  std::vector<checkpoint::SafetensorsTensor> tensors_;
  std::map<std::string, std::string> data_;
};

// The micro-batches of S steps, one after the other.
class Batches {
 public:
  Batches(const TensorFile& file, const spec::BatchConfig& batch)
      : steps_(file.first_dimension("tokens")), rows_(batch.micro * batch.sequence) {
    const std::vector<int64_t> shape = {steps_, batch.global, batch.sequence};
    tokens_ = file.read<int32_t>("tokens", DType::i32, shape);
    targets_ = file.read<int32_t>("targets", DType::i32, shape);
  }

  int64_t steps() const { return steps_; }

  train::BatchView view(int64_t micro_batch) const {
    const int64_t first = micro_batch * rows_;
    return {tokens_.data() + first, targets_.data() + first, first};
  }

  train::BatchSource from_start() const {
    return [this, next = int64_t{0}]() mutable { return view(next++); };
  }

 private:
  int64_t steps_;
  int64_t rows_;  // per micro-batch
  std::vector<int32_t> tokens_;
  std::vector<int32_t> targets_;
};

void load_weights(train::Trainer& trainer, const TensorFile& weights) {
  trainer.initialize();
  size_t loaded = 0;
  for (const spec::PlacedParam& placed : trainer.layout().params) {
    const std::vector<float> values =
        weights.read<float>(placed.name, DType::f32, placed.param.shape);
    trainer.state().set_parameter(placed, values.data());
    ++loaded;
  }
  if (loaded != weights.size()) {
    fail(ErrorKind::corrupt, "expected {} parameters of the model, found {} tensors", loaded,
         weights.size());
  }
  trainer.state_changed();
}

void load_teacher(train::Trainer& trainer, const spec::DistillConfig& distill) {
  const TensorFile weights(distill.teacher);
  const spec::ParamLayout layout = spec::param_layout(spec::param_table(*distill.model));
  std::vector<float> flat(static_cast<size_t>(layout.elements));
  for (const spec::PlacedParam& placed : layout.params) {
    const std::vector<float> values =
        weights.read<float>(placed.name, DType::f32, placed.param.shape);
    std::copy(values.begin(), values.end(), flat.begin() + placed.element_offset);
  }
  trainer.set_teacher(flat.data());
}

void add_greedy(const spec::Recipe& recipe, const TensorFile& weights, const TensorFile& tokens,
                OutputFile& out) {
  constexpr int64_t kNew = 10;
  const spec::ParamLayout layout = spec::param_layout(spec::param_table(recipe.model));
  std::vector<float> flat(static_cast<size_t>(layout.elements));
  for (const spec::PlacedParam& placed : layout.params) {
    const std::vector<float> values =
        weights.read<float>(placed.name, DType::f32, placed.param.shape);
    std::copy(values.begin(), values.end(), flat.begin() + placed.element_offset);
  }
  const int64_t length = tokens.first_dimension("prompt");
  model::Decoder decoder(recipe.model, layout, flat.data(), DType::f32, length + kNew);
  const std::unique_ptr<engine::Stream> stream = engine::make_cpu_stream(1);
  std::vector<int32_t> next = tokens.read<int32_t>("prompt", DType::i32, {length});
  std::vector<int32_t> greedy;
  for (int64_t i = 0; i < kNew; ++i) {
    const std::vector<float> logits = decoder.feed(*stream, next);
    const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
    greedy.push_back(static_cast<int32_t>(best));
    next = {greedy.back()};
  }
  out.add("greedy", DType::i32, {kNew}, greedy.data());
}

// Adds the merged weights to `out`, and exports the adapters to `folder`.
void add_adapters(const spec::Recipe& recipe, const TensorFile& weights, const std::string& folder,
                  OutputFile& out) {
  const spec::ParamLayout layout = spec::param_layout(spec::param_table(recipe.model, recipe.lora));
  std::vector<float> flat(static_cast<size_t>(layout.elements));
  for (const spec::PlacedParam& placed : layout.params) {
    const std::vector<float> values =
        weights.read<float>(placed.name, DType::f32, placed.param.shape);
    std::copy(values.begin(), values.end(), flat.begin() + placed.element_offset);
  }
  checkpoint::export_adapter(posix_file_system(), layout, recipe.model, flat.data(), "", folder);
  checkpoint::merge_adapters(layout, recipe.model, flat.data());
  for (const spec::PlacedParam& placed : layout.params) {
    if (placed.param.trainable) continue;
    out.add("merged." + placed.name, DType::f32, placed.param.shape,
            flat.data() + placed.element_offset);
  }
}

void run(const std::string& recipe_path, const std::string& weights_path,
         const std::string& tokens_path, const std::string& out_path,
         const std::string& adapter_folder) {
  const spec::Recipe recipe =
      spec::parse_recipe(read_file(posix_file_system(), recipe_path), recipe_path, {}, "");
  const Batches batches(TensorFile(tokens_path), recipe.batch);
  train::Trainer trainer(recipe);
  load_weights(trainer, TensorFile(weights_path));
  if (recipe.distill.enabled()) load_teacher(trainer, recipe.distill);
  OutputFile out;
  if (recipe.lora.enabled()) {
    add_adapters(recipe, TensorFile(weights_path), adapter_folder, out);
  }

  if (const TensorFile tokens(tokens_path); tokens.has("prompt")) {
    add_greedy(recipe, TensorFile(weights_path), tokens, out);
  }

  std::vector<float> logits;
  for (int64_t micro = 0; micro < recipe.batch.global / recipe.batch.micro; ++micro) {
    const std::vector<float> rows = trainer.logits(batches.view(micro));
    logits.insert(logits.end(), rows.begin(), rows.end());
  }
  out.add("logits", DType::f32,
          {recipe.batch.global * recipe.batch.sequence, recipe.model.vocabulary}, logits.data());

  const double loss = trainer.gradients(batches.from_start());
  out.add("loss", DType::f64, {1}, &loss);
  if (const auto& parts = trainer.loss_parts()) {
    out.add("ce_loss", DType::f64, {1}, &parts->cross_entropy);
    out.add("kl_loss", DType::f64, {1}, &parts->divergence);
  }
  if (recipe.model.moe.experts > 0) {
    const telemetry::Routing routing =
        train::routing_of_step(trainer.stream(), recipe, trainer.memory());
    out.add("balance_loss", DType::f64, {1}, &routing.balance_loss);
    out.add("z_loss", DType::f64, {1}, &routing.z_loss);
  }
  for (const train::StateTensor& tensor : trainer.state().gradients()) {
    std::vector<char> bytes(
        static_cast<size_t>(checkpoint::checked_bytes(tensor.dtype, tensor.shape)));
    trainer.state().fetch(tensor, bytes.data());  // also from a device
    out.add("grad." + tensor.name, tensor.dtype, tensor.shape, bytes.data());
  }

  std::vector<double> losses;
  const train::BatchSource next = batches.from_start();
  for (int64_t step = 1; step <= batches.steps(); ++step) {
    const train::StepResult result = trainer.step(next, recipe.optimizer.learning_rate, step);
    if (!result.applied) {
      fail(ErrorKind::diverged, "step {}: {} is not finite", step, result.nonfinite_tensor);
    }
    losses.push_back(result.loss);
  }
  out.add("losses", DType::f64, {batches.steps()}, losses.data());
  out.write(out_path);
}

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) {
  if (argc != 5 && argc != 6) {
    std::fputs("usage: parity_dump RECIPE WEIGHTS TOKENS OUT [FOLDER]\n", stderr);
    return tutti::exit_usage;
  }
  try {
    tutti::run(argv[1], argv[2], argv[3], argv[4], argc == 6 ? argv[5] : "");
  } catch (const tutti::Error& error) {
    fmt::print(stderr, "parity_dump: {}\n", error.what());
    return tutti::exit_code(error.kind());
  }
  return tutti::exit_ok;
}
