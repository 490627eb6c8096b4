// The verbs, one file each. Every add_ function describes its command to the parser; when the user
// asked for it, parsing leaves in `action` what main() then runs. Actions return the exit code and
// throw tutti::Error for what goes wrong outside.
#pragma once

#include <CLI/CLI.hpp>
#include <array>
#include <functional>

namespace tutti::cli {

using Action = std::function<int()>;

void add_data(CLI::App& app, Action& action);
void add_train(CLI::App& app, Action& action);
void add_recipe(CLI::App& app, Action& action);
void add_reproduce(CLI::App& app, Action& action);
void add_eval(CLI::App& app, Action& action);
void add_generate(CLI::App& app, Action& action);
void add_checkpoint(CLI::App& app, Action& action);
void add_report(CLI::App& app, Action& action);
void add_bench(CLI::App& app, Action& action);
void add_check(CLI::App& app, Action& action);
void add_serve(CLI::App& app, Action& action);
void add_endpoint(CLI::App& app, Action& action);
void add_mlperf(CLI::App& app, Action& action);
void add_plan(CLI::App& app, Action& action);
void add_submit(CLI::App& app, Action& action);
void add_deploy(CLI::App& app, Action& action);         // deploy, deployment
void add_job_queries(CLI::App& app, Action& action);    // queue, show, logs
void add_job_questions(CLI::App& app, Action& action);  // why, cost, ledger
void add_job_steering(CLI::App& app, Action& action);   // cancel, requeue, hold, release
void add_controller(CLI::App& app, Action& action);
void add_sweep_copies(CLI::App& app, Action& action);
void add_admin(CLI::App& app, Action& action);
void add_audit(CLI::App& app, Action& action);
// Of the commands that the program has when they run.
void add_completion(CLI::App& app, Action& action);
void add_man(CLI::App& app, Action& action);

// In the order of `tutti --help`.
inline constexpr std::array kCommands = {
    add_data,         add_train,       add_recipe,        add_reproduce,    add_eval,
    add_generate,     add_checkpoint,  add_report,        add_bench,        add_check,
    add_serve,        add_endpoint,    add_mlperf,        add_plan,         add_submit,
    add_deploy,       add_job_queries, add_job_questions, add_job_steering, add_controller,
    add_sweep_copies, add_admin,       add_audit,         add_completion,   add_man,
};

// Below a verb of theirs.
void add_train_tokenizer(CLI::App& data, Action& action);
void add_checkpoint_import(CLI::App& checkpoint, Action& action);
void add_checkpoint_export(CLI::App& checkpoint, Action& action);
void add_checkpoint_adapter(CLI::App& checkpoint, Action& action);
void add_bench_collectives(CLI::App& bench, Action& action);
void add_bench_pipeline(CLI::App& bench, Action& action);
void add_bench_scaling(CLI::App& bench, Action& action);
void add_bench_inference(CLI::App& bench, Action& action);
void add_bench_all(CLI::App& bench, Action& action);
void add_bench_endpoint(CLI::App& bench, Action& action);
void add_bench_storage(CLI::App& bench, Action& action);

}  // namespace tutti::cli
