// The verbs, one file each. Every add_ function describes its command to the parser; when the user
// asked for it, parsing leaves in `action` what main() then runs. Actions return the exit code and
// throw tutti::Error for what goes wrong outside.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace tutti::cli {

using Action = std::function<int()>;

void add_data(CLI::App& app, Action& action);
void add_train_tokenizer(CLI::App& data, Action& action);  // below `data`
void add_train(CLI::App& app, Action& action);
void add_reproduce(CLI::App& app, Action& action);
void add_eval(CLI::App& app, Action& action);
void add_generate(CLI::App& app, Action& action);
void add_checkpoint(CLI::App& app, Action& action);
void add_checkpoint_import(CLI::App& checkpoint, Action& action);
void add_checkpoint_export(CLI::App& checkpoint, Action& action);
void add_report(CLI::App& app, Action& action);
void add_checkpoint_adapter(CLI::App& group, Action& action);  // of the checkpoint group
void add_bench(CLI::App& app, Action& action);
void add_bench_collectives(CLI::App& bench, Action& action);  // below `bench`
void add_bench_pipeline(CLI::App& bench, Action& action);     // likewise
void add_bench_scaling(CLI::App& bench, Action& action);
void add_bench_all(CLI::App& bench, Action& action);
void add_check(CLI::App& app, Action& action);
void add_serve(CLI::App& app, Action& action);
void add_mlperf(CLI::App& app, Action& action);
void add_plan(CLI::App& app, Action& action);
// Of the commands that the program has when they run.
void add_completion(CLI::App& app, Action& action);
void add_man(CLI::App& app, Action& action);

}  // namespace tutti::cli
