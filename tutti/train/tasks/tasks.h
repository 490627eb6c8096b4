// Multiple-choice questions, scored by the likelihood a model gives to each answer (HellaSwag's
// form, zero-shot).
//
// A file holds one JSON object per line, blank lines aside: {"ctx": text, "endings": [text, ...],
// "label": index of the right one, as a number or in quotes}; other keys are ignored. Context and
// ending are joined by a space unless either has white space there, and encoded apart, so that the
// context's tokens are the same for every ending. The model reads context and ending; the ending's
// score is the sum of the log-likelihoods of its tokens. An ending is chosen by
//   acc              the highest score
//   acc_norm         the highest score per byte of the ending as written in the file
//   acc_norm_tokens  the highest score per token of the ending
// of equals the first. A context that does not fit loses its beginning.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/base/json.h"
#include "tutti/data/tokenizers/tokenizer.h"
#include "tutti/train/session/run_folder.h"

namespace tutti::train {

struct Question {
  int64_t line = 0;  // of its file, from 1
  std::string context;
  std::vector<std::string> endings;
  int64_t label = 0;
};

// Throws corrupt with "PATH:LINE: " and what is wrong: no JSON, a key missing or of another type,
// fewer than two endings, an empty ending, a label outside; not_found for the file.
std::vector<Question> read_questions(FileSystem& files, const std::string& path);

struct TaskResult {
  int64_t questions = 0;
  int64_t correct = 0, correct_norm = 0, correct_norm_tokens = 0;
  int64_t tokens = 0;     // of all endings
  int64_t truncated = 0;  // sequences whose context lost its beginning
  double seconds = 0;
  std::vector<std::vector<double>> scores;  // log-likelihood of every ending of every question
};

// {"questions", "acc", "acc_stderr", "acc_norm", "acc_norm_stderr", "acc_norm_tokens", ...}
Json to_json(const TaskResult& result);

// Scores the questions of file `path` in micro-batches of as many rows as `batch` of the longest
// sequence have. `progress` gets sequences done and in all. Throws
// usage with "PATH:LINE: " for text that the tokenizer does not know or an ending longer than the
// model's context.
TaskResult score_questions(const LoadedRun& run, const data::Tokenizer& tokenizer,
                           const std::string& path, const std::vector<Question>& questions,
                           int64_t batch,
                           const std::function<void(int64_t done, int64_t total)>& progress);

}  // namespace tutti::train
