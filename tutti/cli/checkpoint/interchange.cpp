// tutti checkpoint import, tutti checkpoint export.
#include "tutti/train/tasks/interchange.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/signals.h"
#include "tutti/base/text.h"
#include "tutti/base/units.h"
#include "tutti/cli/program/commands.h"
#include "tutti/cli/program/common.h"
#include "tutti/object/file_system.h"
#include "tutti/telemetry/sinks/progress_bar.h"
#include "tutti/train/tasks/gguf_interchange.h"

namespace tutti::cli {
namespace {

struct ImportArguments {
  std::string source;
  std::string out;
  std::string dtype = "auto";
  std::string rope_layout = "half";
  bool json = false;
};

struct ExportArguments {
  std::string run;
  std::string out;
  std::string format = "huggingface";
  std::string dtype = "auto";
  std::string rope_layout = "half";
  std::string shard_bytes = "5GB";
  std::string tokenizer = "auto";
  bool best = false;
  bool json = false;
};

std::optional<DType> parse_file_dtype(const std::string& name, const char* others = "") {
  if (name == "auto") return std::nullopt;
  for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
    if (name == dtype_name(type)) return type;
  }
  fail(ErrorKind::usage, "--dtype: '{}' is not accepted; accepted: auto, f32, bf16, f16{}", name,
       others);
}

std::optional<PackKind> parse_pack_kind(const std::string& name) {
  for (const PackKind kind : {PackKind::int8, PackKind::int4}) {
    if (name == pack_name(kind)) return kind;
  }
  return std::nullopt;
}

checkpoint::RopeLayout parse_rope_layout(const std::string& name) {
  if (name == "half") return checkpoint::RopeLayout::half;
  if (name == "interleaved") return checkpoint::RopeLayout::interleaved;
  fail(ErrorKind::usage, "--rope-layout: '{}' is not accepted; accepted: half, interleaved", name);
}

// Reports bytes; Ctrl-C ends the work.
train::ByteProgress reporting_to(telemetry::ProgressBar& bar) {
  return [&bar](int64_t done, int64_t total) {
    throw_if_interrupted();
    bar.update(done, total);
  };
}

void print_notes(const std::vector<std::string>& notes) {
  for (const std::string& note : notes) print_message("note: " + note + "\n");
}

std::string names_text(const std::vector<std::string>& names) {
  return names.empty() ? "none" : join(names, ", ");
}

int run_import(const ImportArguments& arguments) {
  train::ImportOptions options;
  options.dtype = parse_file_dtype(arguments.dtype);
  options.rope_layout = parse_rope_layout(arguments.rope_layout);
  watch_signals();
  telemetry::ProgressBar progress("import", "bytes");
  options.progress = reporting_to(progress);
  const double begin = monotonic_seconds();
  FileSystem& files = object::file_system();
  if (!files.exists(arguments.source)) {
    fail(ErrorKind::not_found,
         "'{}' does not exist; give a folder with config.json and model.safetensors, as "
         "save_pretrained writes it, or a GGUF file",
         arguments.source);
  }
  const bool gguf = checkpoint::is_gguf(files, arguments.source);
  const train::ImportedRun run =
      gguf ? train::import_gguf(files, arguments.source, arguments.out, options)
           : train::import_run(files, arguments.source, arguments.out, options);
  progress.finish();
  const double seconds = monotonic_seconds() - begin;
  const checkpoint::HfImported& done = run.parameters;
  print_notes(run.notes);
  if (arguments.json) {
    print_json({{"run", run.folder},
                {"checkpoint", done.written.path},
                {"model_type", checkpoint::hf_family_name(run.family)},
                {"parameters", done.parameters},
                {"tensors", done.tensors},
                {"dtype", dtype_name(done.dtype)},
                {"bytes", done.written.bytes},
                {"files", run.kept_files},
                {"tokenizer", run.tokenizer ? Json(run.tokenizer->name()) : Json(nullptr)},
                {"notes", run.notes},
                {"seconds", seconds}});
    return exit_ok;
  }
  print_text(format_pairs(
      {{"model",
        fmt::format("{}, {} parameters in {} tensors", checkpoint::hf_family_name(run.family),
                    format_count(static_cast<double>(done.parameters)), done.tensors)},
       {"checkpoint", fmt::format("{}, {}, {}", done.written.path, dtype_name(done.dtype),
                                  format_bytes(static_cast<double>(done.written.bytes)))},
       {"kept", names_text(run.kept_files)},
       {"tokenizer", run.tokenizer ? fmt::format("{}, {} tokens", run.tokenizer->name(),
                                                 run.tokenizer->vocabulary_size())
                                   : "none"},
       {"run folder", run.folder}}));
  return exit_ok;
}

int print_gguf(const ExportArguments& arguments, const train::ExportedGguf& exported,
               checkpoint::GgufType type, double seconds) {
  print_notes(exported.run.notes);
  if (arguments.json) {
    print_json({{"file", exported.run.folder},
                {"checkpoint", exported.run.checkpoint},
                {"step", exported.run.step},
                {"model_type", checkpoint::hf_family_name(exported.run.family)},
                {"dtype", checkpoint::gguf_type_name(type)},
                {"tensors", exported.file.tensors},
                {"file_bytes", exported.file.file_bytes},
                {"notes", exported.run.notes},
                {"seconds", seconds}});
    return exit_ok;
  }
  print_text(format_pairs(
      {{"checkpoint", exported.run.checkpoint},
       {"model",
        fmt::format("{}, {} tensors, {}, {}", checkpoint::hf_family_name(exported.run.family),
                    exported.file.tensors, checkpoint::gguf_type_name(type),
                    format_bytes(static_cast<double>(exported.file.file_bytes)))},
       {"file", exported.run.folder}}));
  return exit_ok;
}

int run_export(const ExportArguments& arguments) {
  train::ExportOptions options;
  const bool gguf = arguments.format == "gguf";
  if (!gguf && arguments.format != "huggingface") {
    fail(ErrorKind::usage, "--format: '{}' is not accepted; accepted: huggingface, gguf",
         arguments.format);
  }
  const checkpoint::GgufType type = !gguf || arguments.dtype == "auto"
                                        ? checkpoint::GgufType::bf16
                                        : checkpoint::parse_gguf_type(arguments.dtype);
  if (!gguf) options.pack = parse_pack_kind(arguments.dtype);
  if (!gguf && !options.pack) options.dtype = parse_file_dtype(arguments.dtype, ", int8, int4");
  options.rope_layout = parse_rope_layout(arguments.rope_layout);
  options.shard_bytes = parse_bytes(arguments.shard_bytes, "--shard-bytes");
  if (options.shard_bytes < 1) {
    fail(ErrorKind::usage, "--shard-bytes: '{}' is not accepted; write at least one byte",
         arguments.shard_bytes);
  }
  options.best = arguments.best;
  if (arguments.tokenizer != "auto") {
    options.tokenizer = arguments.tokenizer == "none" ? "" : arguments.tokenizer;
  }
  watch_signals();
  telemetry::ProgressBar progress("export", "bytes");
  options.progress = reporting_to(progress);
  const double begin = monotonic_seconds();
  if (gguf) {
    const train::ExportedGguf exported =
        train::export_gguf(object::file_system(), arguments.run, arguments.out, type, options);
    progress.finish();
    return print_gguf(arguments, exported, type, monotonic_seconds() - begin);
  }
  const train::ExportedRun exported =
      train::export_run(object::file_system(), arguments.run, arguments.out, options);
  progress.finish();
  const double seconds = monotonic_seconds() - begin;
  const checkpoint::HfExported& done = exported.parameters;
  const char* dtype = options.pack ? pack_name(*options.pack) : dtype_name(done.dtype);
  print_notes(exported.notes);
  if (arguments.json) {
    print_json({{"folder", exported.folder},
                {"checkpoint", exported.checkpoint},
                {"step", exported.step},
                {"model_type", checkpoint::hf_family_name(exported.family)},
                {"dtype", dtype},
                {"tensors", done.tensors},
                {"tensor_bytes", done.tensor_bytes},
                {"weight_files", done.files},
                {"files", exported.copied_files},
                {"notes", exported.notes},
                {"seconds", seconds}});
    return exit_ok;
  }
  print_text(format_pairs(
      {{"checkpoint", exported.checkpoint},
       {"model",
        fmt::format("{}, {} tensors, {}, {}", checkpoint::hf_family_name(exported.family),
                    done.tensors, dtype, format_bytes(static_cast<double>(done.tensor_bytes)))},
       {"weights",
        done.files.size() == 1 ? done.files.front() : fmt::format("{} files", done.files.size())},
       {"tokenizer", names_text(exported.copied_files)},
       {"folder", exported.folder}}));
  return exit_ok;
}

}  // namespace

void add_checkpoint_import(CLI::App& group, Action& action) {
  const auto arguments = std::make_shared<ImportArguments>();
  CLI::App* command =
      group.add_subcommand("import", "Import a Hugging Face or GGUF model as a run");
  command
      ->add_option(
          "DIR", arguments->source,
          "Folder with config.json and model.safetensors (or shards and their index), or a "
          "GGUF file")
      ->required();
  command->add_option("--out", arguments->out, "New run folder")->required()->type_name("FOLDER");
  command
      ->add_option("--dtype", arguments->dtype, "Store as f32, bf16 or f16; auto: as in the files")
      ->capture_default_str();
  command
      ->add_option("--rope-layout", arguments->rope_layout,
                   "Pairs of rotary positions: half (transformers) or interleaved (Meta)")
      ->capture_default_str();
  add_json_option(*command, arguments->json);
  command->footer(
      "Models: gpt2, llama (2, 3, 3.1 and later), mistral, mixtral, qwen2, qwen3, gemma2, "
      "gemma3_text,\n"
      "phi3, olmo2, smollm3, granite, glm4, qwen3_moe, olmoe, gpt_oss, deepseek_v2, deepseek_v3.\n"
      "A setting of config.json that Tutti does not support is an error that names the key.\n\n"
      "Examples:\n"
      "  tutti checkpoint import Llama-3.2-1B --out runs/llama\n"
      "  tutti checkpoint import model.gguf --out runs/model\n"
      "  tutti generate runs/llama --prompt \"Once\"\n"
      "  tutti data prepare books/ --out books --tokenizer runs/llama/tokenizer.json\n"
      "  tutti eval runs/llama --data books");
  command->callback(
      [arguments, &action] { action = [arguments] { return run_import(*arguments); }; });
}

void add_checkpoint_export(CLI::App& group, Action& action) {
  const auto arguments = std::make_shared<ExportArguments>();
  CLI::App* command =
      group.add_subcommand("export", "Export a run as a Hugging Face or GGUF model");
  command->add_option("RUN", arguments->run, "Run folder, or one checkpoint folder in it")
      ->required();
  command->add_option("--out", arguments->out, "New folder, or new GGUF file")
      ->required()
      ->type_name("DIR");
  command
      ->add_option("--format", arguments->format,
                   "huggingface, or gguf (gpt2, llama, mistral, qwen2, qwen3, gemma2, gemma3_text)")
      ->capture_default_str();
  command
      ->add_option(
          "--dtype", arguments->dtype,
          "Write f32, bf16 or f16, or matrices in int8 or int4 for serving, in GGUF files q8_0 or "
          "q4_0; auto: as stored (f32 for trained runs), in GGUF files bf16")
      ->capture_default_str();
  command->add_option("--shard-bytes", arguments->shard_bytes, "Largest weight file")
      ->capture_default_str();
  command
      ->add_option("--tokenizer", arguments->tokenizer,
                   "Folder of the tokenizer to export; auto: that of the import or run; none")
      ->capture_default_str();
  command
      ->add_option("--rope-layout", arguments->rope_layout,
                   "Pairs of rotary positions: half (transformers) or interleaved (Meta)")
      ->capture_default_str();
  command->add_flag("--best", arguments->best,
                    "The checkpoint of the lowest validation loss, not the newest");
  add_json_option(*command, arguments->json);
  command->footer(
      "Read it with transformers: AutoModelForCausalLM.from_pretrained(\"DIR\").\n\n"
      "Examples:\n"
      "  tutti checkpoint export runs/tuned --out tuned-hf --dtype bf16\n"
      "  tutti checkpoint export runs/tuned --out tuned-int4 --dtype int4\n"
      "  tutti checkpoint export runs/tuned --out tuned.gguf --format gguf --dtype q8_0");
  command->callback(
      [arguments, &action] { action = [arguments] { return run_export(*arguments); }; });
}

}  // namespace tutti::cli
