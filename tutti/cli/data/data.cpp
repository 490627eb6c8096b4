#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/base/signals.h"
#include "tutti/base/text.h"
#include "tutti/base/units.h"
#include "tutti/cli/program/commands.h"
#include "tutti/cli/program/common.h"
#include "tutti/cli/program/output_lock.h"
#include "tutti/data/corpus/inspect.h"
#include "tutti/data/prepare/prepare.h"
#include "tutti/data/prepare/synthetic_text.h"
#include "tutti/object/file_system.h"
#include "tutti/telemetry/sinks/progress_bar.h"

namespace tutti::cli {
namespace {

struct PrepareArguments {
  data::PrepareOptions options;
  std::string source_list;
  std::string split = "auto";
  std::string answers = "all";
  bool json = false;
};

Json skipped_json(const std::vector<data::Skipped>& skipped) {
  Json list = Json::array();
  for (const data::Skipped& entry : skipped) {
    list.push_back(
        {{"reason", entry.reason}, {"count", entry.count}, {"examples", entry.examples}});
  }
  return list;
}

Json part_json(const data::PreparedPart& part) {
  return {{"prefix", part.prefix},
          {"documents", part.corpus.documents},
          {"tokens", part.corpus.tokens},
          {"text_bytes", part.text_bytes}};
}

Json to_json(const data::PrepareResult& result) {
  Json json = {{"training", part_json(result.training)},
               {"tokenizer", result.tokenizer},
               {"vocabulary", result.vocabulary},
               {"split", result.split},
               {"split_reason", result.split_reason},
               {"files", result.files},
               {"source_bytes", result.source_bytes},
               {"seconds", result.seconds},
               {"bytes_per_second", result.bytes_per_second},
               {"skipped", skipped_json(result.skipped)}};
  json["sources"] = Json::array();
  for (const data::SourceMeta& source : result.sources) {
    json["sources"].push_back(data::source_meta_json(source));
  }
  if (result.validation) json["validation"] = part_json(*result.validation);
  return json;
}

std::string part_text(const char* name, const data::PreparedPart& part) {
  return fmt::format("{:<11} {}: {} documents, {} tokens\n", name, part.prefix,
                     format_count(static_cast<double>(part.corpus.documents)),
                     format_count(static_cast<double>(part.corpus.tokens)));
}

std::string source_text(const data::SourceMeta& source) {
  std::string words;
  if (!source.licence.empty()) words += ", " + source.licence;
  if (!source.data_class.empty()) words += ", " + source.data_class;
  return fmt::format("source      {}: {}, {} documents, {} tokens{}\n", source.path,
                     format_bytes(static_cast<double>(source.bytes)),
                     format_count(static_cast<double>(source.documents)),
                     format_count(static_cast<double>(source.tokens)), words);
}

std::string to_text(const data::PrepareResult& result) {
  std::string text = part_text("training", result.training);
  if (result.validation) text += part_text("validation", *result.validation);
  text += fmt::format("tokenizer   {}, vocabulary {}\n", result.tokenizer, result.vocabulary);
  text += fmt::format("split       {}: {}\n", result.split, result.split_reason);
  text += fmt::format("read        {} files, {} at {:.1f} MB/s\n", result.files,
                      format_bytes(static_cast<double>(result.source_bytes)),
                      result.bytes_per_second / 1e6);
  for (const data::SourceMeta& source : result.sources) {
    text += source_text(source);
  }
  for (const data::Skipped& entry : result.skipped) {
    text += fmt::format("skipped     {} {}, such as {}\n", entry.count, entry.reason,
                        entry.examples.empty() ? "-" : entry.examples.front());
  }
  return text;
}

int prepare(PrepareArguments arguments) {
  watch_signals();
  if (arguments.split != "auto") {
    arguments.options.split = data::parse_split_method(arguments.split);
  }
  arguments.options.answers = chat::parse_answers(arguments.answers);
  FileSystem& files = object::file_system();
  if (!arguments.source_list.empty()) {
    const data::SourceList list = data::load_source_list(files, arguments.source_list);
    auto& [paths, notes] = list;
    arguments.options.notes.resize(arguments.options.sources.size());
    arguments.options.sources.insert(arguments.options.sources.end(), paths.begin(), paths.end());
    arguments.options.notes.insert(arguments.options.notes.end(), notes.begin(), notes.end());
  }
  telemetry::ProgressBar progress("prepare", "bytes");
  arguments.options.progress = [&](int64_t done, int64_t total) {
    throw_if_interrupted();
    progress.update(done, total);
  };
  std::optional<OutputLock> lock;
  const std::string& prefix = arguments.options.prefix;
  if (!prefix.empty() && prefix.back() != '/') lock.emplace(files, prefix);
  const data::PrepareResult result = data::prepare(files, arguments.options);
  progress.finish();
  if (arguments.json) {
    print_json(to_json(result));
  } else {
    print_text(to_text(result));
  }
  return exit_ok;
}

void add_prepare(CLI::App& data, Action& action) {
  const auto arguments = std::make_shared<PrepareArguments>();
  data::PrepareOptions& options = arguments->options;
  CLI::App* command = data.add_subcommand("prepare", "Turn text into a corpus to train on");
  command->add_option("SRC", options.sources, "Text files, JSON lines (.gz, .zst too) or folders");
  command->add_option("--sources", arguments->source_list,
                      "YAML list of more sources: [{path, licence, data_class, key}, ...]");
  command->add_option("--out", options.prefix, "Write PREFIX.bin, PREFIX.idx, ...")
      ->required()
      ->type_name("PREFIX");
  command
      ->add_option("--tokenizer", options.tokenizer,
                   "byte, char, a tokenizer.json, a SentencePiece .model, or a folder with one")
      ->capture_default_str();
  command->add_option("--eos", options.tokenizer_options.end,
                      "Token that ends documents; none; default: the tokenizer's");
  command->add_option("--bos", options.tokenizer_options.begin,
                      "Token that starts documents; auto: the tokenizer's; model: where "
                      "transformers adds one; default none");
  command->add_flag(
      "--special", options.tokenizer_options.special,
      "Parse control tokens such as <|endoftext|> in the text; only for trusted text");
  command->add_option("--holdout", options.holdout_share,
                      "Share held out for validation, into PREFIX-validation; 0.05 is 5%");
  command
      ->add_option("--split", arguments->split,
                   "How to hold out: documents, tail (of the text), auto")
      ->capture_default_str();
  command->add_option("--split-seed", options.split_seed, "Selects which documents");
  command
      ->add_option("--include", options.include,
                   "File suffixes to read from folders, such as .txt,.md; default all")
      ->delimiter(',');
  command->add_option("--key", options.json_key, "Key of the text in JSON lines")
      ->capture_default_str();
  command->add_option("--prompt-key", options.exchange.prompt,
                      "Key of prompts in JSON lines; prompts are not trained on");
  command->add_option("--completion-key", options.exchange.completion,
                      "Key of what follows the prompt");
  command->add_option("--messages-key", options.exchange.messages,
                      "Key of lists of {role, content}; the last answer is trained on");
  command->add_option("--template", options.exchange.message_template, "Format of a message")
      ->capture_default_str();
  command
      ->add_option(
          "--chat-template", options.chat_template,
          "Write messages by a Jinja template: FILE.jinja, tokenizer_config.json, a folder, "
          "or tokenizer for the tokenizer's own; answers are trained on")
      ->type_name("WHERE");
  command
      ->add_option("--answers", arguments->answers,
                   "With --chat-template, trained on: all answers of the assistant, or the last")
      ->capture_default_str();
  command->add_option("--threads", options.threads, "Threads; 0: one per core")
      ->capture_default_str()
      ->check(at_least(0));
  command->add_flag("--overwrite", options.overwrite, "Replace an existing corpus of this name");
  command->add_option("--licence,--license", options.licence, "Recorded with the corpus");
  command->add_option("--data-class", options.data_class, "Recorded with the corpus");
  add_json_option(*command, arguments->json);
  command->footer(
      "Example:\n  tutti data prepare books/ --out corpora/books --tokenizer byte --holdout 0.05");
  command->callback([arguments, &action] { action = [arguments] { return prepare(*arguments); }; });
}

struct InspectArguments {
  std::string prefix;
  data::InspectOptions options;
  bool quick = false;
  bool json = false;
};

Json to_json(const data::CorpusInspection& corpus) {
  Json checks = Json::array();
  for (const data::CorpusCheck& check : corpus.checks) {
    checks.push_back({{"name", check.name}, {"ok", check.ok}, {"detail", check.detail}});
  }
  Json json = {{"prefix", corpus.prefix},
               {"dtype", dtype_name(corpus.dtype)},
               {"documents", corpus.documents},
               {"sequences", corpus.sequences},
               {"tokens", corpus.tokens},
               {"bin_bytes", corpus.bin_bytes},
               {"idx_bytes", corpus.idx_bytes},
               {"shortest_document_tokens", corpus.shortest_document},
               {"longest_document_tokens", corpus.longest_document},
               {"mean_document_tokens", corpus.mean_document},
               {"tokenizer", corpus.tokenizer},
               {"vocabulary", corpus.vocabulary},
               {"sample", corpus.sample_text},
               {"checks", std::move(checks)},
               {"ok", corpus.ok}};
  if (corpus.largest_id) json["largest_id"] = *corpus.largest_id;
  if (corpus.masked_tokens) json["masked_tokens"] = *corpus.masked_tokens;
  if (corpus.packing) {
    const data::PackingInspection& packing = *corpus.packing;
    json["packing"] = {{"sequence", packing.sequence},
                       {"windows", packing.windows},
                       {"useful_rows", packing.useful_rows},
                       {"useful_share", packing.useful_share},
                       {"attention_share", packing.attention_share},
                       {"split_documents", packing.split_documents},
                       {"documents_without_rows", packing.documents_without_rows}};
  }
  if (corpus.meta) json["meta"] = data::corpus_meta_json(*corpus.meta);
  return json;
}

std::string to_text(const data::CorpusInspection& corpus) {
  const auto count = [](int64_t value) { return format_count(static_cast<double>(value)); };
  std::string text;
  text +=
      fmt::format("corpus      {} ({} as {})\n", corpus.prefix,
                  format_bytes(static_cast<double>(corpus.bin_bytes)), dtype_name(corpus.dtype));
  text += fmt::format("documents   {}, of {} to {} tokens, {} on average\n",
                      count(corpus.documents), count(corpus.shortest_document),
                      count(corpus.longest_document), format_count(corpus.mean_document));
  text += fmt::format("tokens      {}\n", count(corpus.tokens));
  if (corpus.masked_tokens) {
    text += fmt::format(
        "masked      {} tokens, {:.2f}%\n", count(*corpus.masked_tokens),
        100 * static_cast<double>(*corpus.masked_tokens) / static_cast<double>(corpus.tokens));
  }
  if (corpus.packing) {
    const data::PackingInspection& packing = *corpus.packing;
    text += fmt::format(
        "packed      {} windows of {}: {:.2f}% useful, {:.2f}% of the attention of whole "
        "sequences; {} documents longer than a window\n",
        count(packing.windows), packing.sequence, 100 * packing.useful_share,
        100 * packing.attention_share, count(packing.split_documents));
  }
  text += corpus.tokenizer.empty()
              ? std::string("tokenizer unknown: no .tokenizer.json next to the corpus\n")
              : fmt::format("tokenizer   {}, vocabulary {}\n", corpus.tokenizer, corpus.vocabulary);
  if (corpus.meta) {
    text += fmt::format("made        {}\n", corpus.meta->created);
    for (const data::SourceMeta& source : corpus.meta->sources) text += source_text(source);
  }
  for (const data::CorpusCheck& check : corpus.checks) {
    text +=
        fmt::format("check       {} {}: {}\n", check.ok ? "ok" : "BAD", check.name, check.detail);
  }
  if (!corpus.sample_text.empty()) text += "\n" + printable(corpus.sample_text) + "\n";
  return text;
}

int inspect(InspectArguments arguments) {
  arguments.options.verify = !arguments.quick;
  const data::CorpusInspection corpus =
      data::inspect_corpus(object::file_system(), arguments.prefix, arguments.options);
  if (arguments.json) {
    print_json(to_json(corpus));
  } else {
    print_text(to_text(corpus));
  }
  return corpus.ok ? exit_ok : exit_failed;
}

void add_inspect(CLI::App& data, Action& action) {
  const auto arguments = std::make_shared<InspectArguments>();
  CLI::App* command =
      data.add_subcommand("inspect", "Show counts, checks and a sample of a corpus");
  command->add_option("PREFIX", arguments->prefix, "The corpus: PREFIX.bin and PREFIX.idx")
      ->required();
  command->add_option("--sample", arguments->options.sample_tokens, "Tokens of the sample")
      ->capture_default_str()
      ->check(at_least(0));
  command->add_option("--first", arguments->options.sample_first, "Token the sample starts at")
      ->capture_default_str()
      ->check(at_least(0));
  command
      ->add_option("--sequence", arguments->options.sequence,
                   "Show how documents pack into windows of N tokens")
      ->check(at_least(1));
  command->add_flag("--quick", arguments->quick, "Do not read all of PREFIX.bin");
  add_json_option(*command, arguments->json);
  command->footer(
      "Exit code 1 when a check fails.\n\nExample:\n  tutti data inspect corpora/books");
  command->callback([arguments, &action] { action = [arguments] { return inspect(*arguments); }; });
}

struct SynthesizeArguments {
  std::string path;
  uint64_t seed = 1;
  int64_t documents = 1000;
  bool overwrite = false;
  bool json = false;
};

int synthesize(const SynthesizeArguments& arguments) {
  FileSystem& files = object::file_system();
  if (files.exists(arguments.path) && !arguments.overwrite) {
    fail(ErrorKind::usage, "--out: '{}' exists; choose another name or give --overwrite",
         arguments.path);
  }
  watch_signals();
  telemetry::ProgressBar progress("synthesize", "documents");
  const data::SyntheticTextSummary summary = data::write_synthetic_text(
      files, arguments.path, arguments.seed, arguments.documents, [&](int64_t done, int64_t total) {
        throw_if_interrupted();
        progress.update(done, total);
      });
  progress.finish();
  if (arguments.json) {
    print_json({{"path", arguments.path},
                {"seed", arguments.seed},
                {"documents", summary.documents},
                {"text_bytes", summary.bytes},
                {"file_xxh3", summary.file_hash}});
  } else {
    print_text(format_pairs({{"written", arguments.path},
                             {"documents", format_count(static_cast<double>(summary.documents))},
                             {"text", format_bytes(static_cast<double>(summary.bytes))},
                             {"XXH3 of the file", summary.file_hash}}));
  }
  return exit_ok;
}

void add_synthesize(CLI::App& data, Action& action) {
  const auto arguments = std::make_shared<SynthesizeArguments>();
  CLI::App* command = data.add_subcommand(
      "synthesize", "Write text of an invented language, the same on every machine");
  command->add_option("--out", arguments->path, "JSON lines, for 'tutti data prepare'")
      ->required()
      ->type_name("FILE.jsonl");
  command->add_option("--documents", arguments->documents, "How many; of about 1,150 bytes each")
      ->capture_default_str()
      ->check(at_least(1));
  command->add_option("--seed", arguments->seed, "Another seed, another language")
      ->capture_default_str();
  command->add_flag("--overwrite", arguments->overwrite, "Replace the file");
  add_json_option(*command, arguments->json);
  command->footer(
      "Example:\n"
      "  tutti data synthesize --documents 6000 --out invented.jsonl\n"
      "  tutti data prepare invented.jsonl --out corpora/invented --tokenizer byte --holdout 0.05");
  command->callback(
      [arguments, &action] { action = [arguments] { return synthesize(*arguments); }; });
}

}  // namespace

void add_data(CLI::App& app, Action& action) {
  CLI::App* data = app.add_subcommand("data", "Prepare and inspect corpora");
  data->require_subcommand(1);
  add_prepare(*data, action);
  add_inspect(*data, action);
  add_train_tokenizer(*data, action);
  add_synthesize(*data, action);
  data->footer("Example:\n  tutti data prepare books/ --out corpora/books --holdout 0.05");
}

}  // namespace tutti::cli
