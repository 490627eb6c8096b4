#include "tutti/train/tasks/tasks.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <numeric>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/repeated_key.h"
#include "tutti/base/text.h"
#include "tutti/data/loader/loader.h"
#include "tutti/train/tasks/evaluator.h"

namespace tutti::train {
namespace {

constexpr int64_t kShortest = 32;  // tokens of the shortest sequences that are batched apart

std::string location(const std::string& path, int64_t line) {
  return fmt::format("{}:{}", path, line);
}

int64_t read_label(const Json& object, const std::string& where, int64_t endings) {
  if (!object.contains("label")) fail(ErrorKind::corrupt, "{}: 'label' is missing", where);
  const Json& value = object["label"];
  int64_t label = -1;
  if (value.is_number_integer()) {
    label = value.get<int64_t>();
  } else if (value.is_string() && value.get<std::string>().size() == 1 &&
             std::isdigit(static_cast<unsigned char>(value.get<std::string>()[0])) != 0) {
    label = value.get<std::string>()[0] - '0';
  }
  if (label < 0 || label >= endings) {
    fail(ErrorKind::corrupt, "{}: 'label' {} is not the index of one of the {} endings", where,
         dump_json(value), endings);
  }
  return label;
}

Question read_question(std::string_view text, const std::string& path, int64_t line) {
  const std::string where = location(path, line);
  const Json object = parse_unique_json(text, where);
  Question question;
  question.line = line;
  question.context = json_get<std::string>(object, "ctx", where);
  question.endings = json_get<std::vector<std::string>>(object, "endings", where);
  if (question.endings.size() < 2) {
    fail(ErrorKind::corrupt, "{}: {} endings; a question has two or more", where,
         question.endings.size());
  }
  for (const std::string& ending : question.endings) {
    if (ending.empty()) fail(ErrorKind::corrupt, "{}: an ending is empty", where);
  }
  question.label = read_label(object, where, static_cast<int64_t>(question.endings.size()));
  return question;
}

bool is_space(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }

// Context and one ending as tokens; those from `first` on are the ending's.
struct Sequence {
  std::vector<int32_t> tokens;
  int64_t first = 0;
  size_t question = 0, ending = 0;
  int64_t inputs() const { return static_cast<int64_t>(tokens.size()) - 1; }
};

// `start`: as the start of a document.
std::vector<int32_t> encode(const data::Tokenizer& tokenizer, const std::string& text, bool start,
                            const std::string& where) {
  try {
    return start ? data::encode_start(tokenizer, text) : tokenizer.encode(text);
  } catch (const Error& error) {
    fail(error.kind(), "{}: {}", where, error.what());
  }
}

class Encoder {
 public:
  Encoder(const data::Tokenizer& tokenizer, const std::string& path, int64_t context)
      : tokenizer_(tokenizer), path_(path), context_(context) {}

  // Appends a sequence per ending; returns how many lost the beginning of their context.
  int64_t encode_question(const Question& question, size_t index,
                          std::vector<Sequence>& out) const {
    const std::string where = location(path_, question.line);
    const std::vector<int32_t> prefix = encode(tokenizer_, question.context, true, where);
    if (prefix.empty()) {
      fail(ErrorKind::usage, "{}: 'ctx' has no token, and the tokenizer none that starts a text",
           where);
    }
    int64_t truncated = 0;
    for (size_t i = 0; i < question.endings.size(); ++i) {
      const std::string& ending = question.endings[i];
      const bool spaced =
          question.context.empty() || is_space(question.context.back()) || is_space(ending.front());
      const std::vector<int32_t> tail =
          encode(tokenizer_, spaced ? ending : " " + ending, false, where);
      const auto length = static_cast<int64_t>(tail.size());
      if (tail.empty() || length > context_) {
        fail(ErrorKind::usage, "{}: ending {} has {} tokens; the model's context holds 1 to {}",
             where, i, length, context_);
      }
      // The last token is only predicted, never read.
      const int64_t kept = std::min(static_cast<int64_t>(prefix.size()), context_ + 1 - length);
      if (kept < static_cast<int64_t>(prefix.size())) ++truncated;
      Sequence sequence;
      sequence.tokens.assign(prefix.end() - kept, prefix.end());
      sequence.first = kept;
      sequence.tokens.insert(sequence.tokens.end(), tail.begin(), tail.end());
      sequence.question = index;
      sequence.ending = i;
      out.push_back(std::move(sequence));
    }
    return truncated;
  }

 private:
  const data::Tokenizer& tokenizer_;
  const std::string& path_;
  int64_t context_;
};

// The longest inputs of a batch: kShortest times a power of two, or the context.
int64_t longest_of(const std::vector<Sequence>& sequences, int64_t context) {
  int64_t longest = 1;
  for (const Sequence& sequence : sequences) longest = std::max(longest, sequence.inputs());
  int64_t size = kShortest;
  while (size < longest) size *= 2;
  return std::min(size, context);
}

// The shortest length that holds `inputs`, of those that divide `longest` by a power of two.
int64_t bucket_of(int64_t inputs, int64_t longest) {
  int64_t size = longest;
  while (size % 2 == 0 && size / 2 >= std::max(inputs, kShortest)) size /= 2;
  return size;
}

double standard_error(double share, int64_t count) {
  return count < 2 ? 0 : std::sqrt(share * (1 - share) / static_cast<double>(count - 1));
}

// The index of the largest score / length, of equals the first.
int64_t best(const std::vector<double>& scores, const std::vector<double>& lengths) {
  size_t chosen = 0;
  for (size_t i = 1; i < scores.size(); ++i) {
    if (scores[i] / lengths[i] > scores[chosen] / lengths[chosen]) chosen = i;
  }
  return static_cast<int64_t>(chosen);
}

}  // namespace

std::vector<Question> read_questions(FileSystem& files, const std::string& path) {
  const std::string text = read_file(files, path);
  std::vector<Question> questions;
  int64_t number = 0;
  for (const std::string_view line : split(text, '\n')) {
    ++number;
    if (!trim(line).empty()) questions.push_back(read_question(line, path, number));
  }
  if (questions.empty()) fail(ErrorKind::corrupt, "{}: no question in it", path);
  return questions;
}

Json to_json(const TaskResult& r) {
  const auto count = static_cast<double>(r.questions);
  const auto share = [&](int64_t correct) { return static_cast<double>(correct) / count; };
  return Json{{"questions", r.questions},
              {"acc", share(r.correct)},
              {"acc_stderr", standard_error(share(r.correct), r.questions)},
              {"acc_norm", share(r.correct_norm)},
              {"acc_norm_stderr", standard_error(share(r.correct_norm), r.questions)},
              {"acc_norm_tokens", share(r.correct_norm_tokens)},
              {"normalized_by", "bytes of the ending"},
              {"ending_tokens", r.tokens},
              {"truncated_contexts", r.truncated},
              {"seconds", r.seconds}};
}

TaskResult score_questions(const LoadedRun& run, const data::Tokenizer& tokenizer,
                           const std::string& path, const std::vector<Question>& questions,
                           int64_t batch, const std::function<void(int64_t, int64_t)>& progress) {
  const double begin = monotonic_seconds();
  const int64_t context = run.recipe.model.context;
  TaskResult result;
  result.questions = static_cast<int64_t>(questions.size());
  std::vector<Sequence> sequences;
  const Encoder encoder(tokenizer, path, context);
  for (size_t i = 0; i < questions.size(); ++i) {
    result.truncated += encoder.encode_question(questions[i], i, sequences);
    result.scores.emplace_back(questions[i].endings.size());
  }

  spec::Recipe recipe = run.recipe;
  recipe.batch.sequence = longest_of(sequences, context);
  recipe.batch.micro =
      std::min(std::max<int64_t>(1, batch), static_cast<int64_t>(sequences.size()));
  recipe.batch.global = recipe.batch.micro;
  Evaluator evaluator(recipe, run.master.data());

  std::vector<size_t> order(sequences.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return sequences[a].inputs() > sequences[b].inputs();
  });
  std::vector<int32_t> tokens(static_cast<size_t>(evaluator.rows()));
  std::vector<int32_t> targets(tokens.size());
  for (size_t done = 0; done < order.size();) {
    const int64_t length = bucket_of(sequences[order[done]].inputs(), recipe.batch.sequence);
    const int64_t rows = evaluator.rows() / length;
    std::fill(tokens.begin(), tokens.end(), 0);
    std::fill(targets.begin(), targets.end(), data::kIgnoredTarget);
    size_t end = done;
    for (int64_t row = 0; row < rows && end < order.size(); ++row, ++end) {
      const Sequence& sequence = sequences[order[end]];
      if (bucket_of(sequence.inputs(), recipe.batch.sequence) != length) break;
      const auto at = row * length;
      std::copy(sequence.tokens.begin(), sequence.tokens.end() - 1, tokens.begin() + at);
      std::copy(sequence.tokens.begin() + sequence.first, sequence.tokens.end(),
                targets.begin() + at + sequence.first - 1);
    }
    const float* losses = evaluator.row_losses({rows, length}, {tokens.data(), targets.data(), 0});
    for (size_t i = done; i < end; ++i) {
      const Sequence& sequence = sequences[order[i]];
      const auto at = static_cast<int64_t>(i - done) * length;
      double sum = 0;
      for (int64_t t = sequence.first - 1; t < sequence.inputs(); ++t) {
        sum -= static_cast<double>(losses[at + t]);
      }
      result.scores[sequence.question][sequence.ending] = sum;
    }
    done = end;
    progress(static_cast<int64_t>(done), static_cast<int64_t>(order.size()));
  }

  size_t next = 0;
  for (size_t q = 0; q < questions.size(); ++q) {
    const std::vector<double>& scores = result.scores[q];
    std::vector<double> one, bytes, counts;
    for (const std::string& ending : questions[q].endings) {
      const Sequence& sequence = sequences[next++];
      one.push_back(1);
      bytes.push_back(static_cast<double>(ending.size()));
      counts.push_back(static_cast<double>(sequence.inputs() + 1 - sequence.first));
      result.tokens += sequence.inputs() + 1 - sequence.first;
    }
    if (best(scores, one) == questions[q].label) ++result.correct;
    if (best(scores, bytes) == questions[q].label) ++result.correct_norm;
    if (best(scores, counts) == questions[q].label) ++result.correct_norm_tokens;
  }
  result.seconds = monotonic_seconds() - begin;
  return result;
}

}  // namespace tutti::train
