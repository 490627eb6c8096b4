// `tutti plan serve`: what users of a served model would see on a machine, and what it costs.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/base/file.h"
#include "tutti/base/text.h"
#include "tutti/base/units.h"
#include "tutti/cli/bench/endpoint_load.h"
#include "tutti/cli/bench/endpoint_result.h"
#include "tutti/cli/plan/assumed_site.h"
#include "tutti/cli/plan/common.h"
#include "tutti/cli/plan/serving_rates.h"
#include "tutti/cli/program/common.h"
#include "tutti/endpoint/engine.h"
#include "tutti/endpoint/played_load.h"
#include "tutti/plan/bill.h"
#include "tutti/plan/serving_cost.h"

namespace tutti::cli {
namespace {

struct ServeArguments {
  std::string model;
  std::string system;
  std::string measured;
  std::string catalog;
  std::string site = kAssumedSite;
  std::string price;
  std::string weights = "bf16";
  int64_t gpus = 1;
  LoadOptions load;
  std::string prompt_tokens = "~256";
  std::string answer_tokens = "~64";
  std::string first_target = "1s";
  std::string token_target = "100ms";
  endpoint::EngineOptions engine;
  bool json = false;
};

struct ServeForecast {
  plan::ServingRates rates;
  std::string rates_source;
  plan::ServingMemory memory;
  endpoint::SchedulerOptions scheduler;
  endpoint::PlayedLoad played;
  EndpointResult result;
  std::optional<plan::Bill> bill;  // of the whole load
  int64_t billed_gpus = 0;
};

void play(const ServeArguments& arguments, const spec::InferenceProgram& program,
          const plan::ServingCost& cost, ServeForecast& forecast) {
  std::vector<endpoint::PlayedRequest> requests;
  EndpointResult& result = forecast.result;
  const int64_t context = program.model().context;
  for (const PlannedRequest& planned : plan_load(arguments.load)) {
    if (planned.prompt_tokens + planned.answer_tokens > context) {
      MeasuredRequest& refused = result.requests.emplace_back();
      refused.planned_seconds = planned.at_seconds;
      refused.error = fmt::format("longer than the model's context of {}", context);
      continue;
    }
    endpoint::PlayedRequest& one = requests.emplace_back();
    one.at_seconds = planned.at_seconds;
    one.prompt_tokens = planned.prompt_tokens;
    one.answer_tokens = planned.answer_tokens;
  }
  forecast.played = endpoint::play_load(requests, forecast.scheduler, arguments.engine.max_waiting,
                                        [&](std::span<const spec::TextRows> texts) {
                                          return cost.pass_seconds(program.pass(texts));
                                        });
  result.rate = arguments.load.rate;
  result.seconds = forecast.played.seconds;
  result.targets = {parse_seconds(arguments.first_target, "--first-token-target"),
                    parse_seconds(arguments.token_target, "--per-token-target")};
  if (requests.empty()) {
    fail(ErrorKind::usage,
         "--prompt-tokens {}, --answer-tokens {}: every request is longer than the context of {} "
         "tokens of {}",
         arguments.prompt_tokens, arguments.answer_tokens, context, arguments.model);
  }
  for (const endpoint::PlayedRequest& request : requests) {
    MeasuredRequest& one = result.requests.emplace_back();
    one.planned_seconds = request.at_seconds;
    one.first_seconds = request.first_token_seconds;
    one.last_seconds = request.last_token_seconds;
    one.prompt_tokens = request.prompt_tokens;
    one.answer_tokens = request.answer_tokens;
    if (request.refused) one.error = "refused: too many wait (--max-waiting)";
  }
}

// Machines are paid for while they wait, too.
plan::Bill bill_of_load(const catalog::Catalog& catalog, const catalog::System& system,
                        const ServeArguments& arguments, const endpoint::PlayedLoad& played) {
  plan::StepPrediction load;
  load.step_seconds = played.seconds;
  load.split.products = played.busy_seconds;
  const catalog::Price* price = catalog.price_of(system.name);
  return plan::bill_of(system, catalog.site(arguments.site), price,
                       catalog::price_kind_of(price, arguments.price), load, arguments.gpus,
                       played.seconds);
}

int64_t answered_tokens(const EndpointResult& result) {
  int64_t out = 0;
  for (const MeasuredRequest& one : result.requests) {
    if (one.error.empty()) out += one.answer_tokens;
  }
  return out;
}

Json forecast_json(const ServeArguments& arguments, const ServeForecast& forecast) {
  Json json = endpoint_result_json(forecast.result);
  json["model"] = arguments.model;
  json["weights"] = arguments.weights;
  json["system"] = arguments.system.empty() ? Json() : Json(arguments.system);
  json["gpus"] = arguments.gpus;
  json["seed"] = arguments.load.seed;
  json["rates"] = {{"source", forecast.rates_source},
                   {"bytes_per_second", forecast.rates.bytes_per_second},
                   {"few_row_flops", forecast.rates.few_row_flops},
                   {"many_row_flops", forecast.rates.many_row_flops},
                   {"pass_seconds", forecast.rates.pass_seconds}};
  json["weight_bytes"] = forecast.memory.weight_bytes;
  json["cache_tokens"] = forecast.scheduler.pages * forecast.scheduler.page_tokens;
  json["busy_share"] = forecast.played.busy_seconds / forecast.played.seconds;
  json["most_running"] = forecast.played.most_running;
  json["preemptions"] = forecast.played.preemptions;
  if (!forecast.bill) return json;
  json["billed_gpus"] = forecast.billed_gpus;
  const double millions = static_cast<double>(answered_tokens(forecast.result)) * 1e-6;
  json["usd_per_million_answer_tokens"] =
      forecast.bill->usd ? Json(*forecast.bill->usd / millions) : Json();
  json["kwh_per_million_answer_tokens"] = forecast.bill->it_kwh == forecast.bill->it_kwh
                                              ? Json(forecast.bill->facility_kwh / millions)
                                              : Json();
  return json;
}

std::string forecast_text(const ServeArguments& arguments, const ServeForecast& forecast) {
  const plan::ServingRates& rates = forecast.rates;
  std::vector<std::pair<std::string, std::string>> pairs = {
      {"model", fmt::format("{}, weights {} of {}", arguments.model,
                            format_bytes(forecast.memory.weight_bytes), arguments.weights)},
      {"rates", forecast.rates_source},
      {"", fmt::format("{}/s of weights and cache, {:.4g} GFLOP/s of prompts",
                       format_bytes(rates.bytes_per_second), rates.many_row_flops * 1e-9)},
      {"cache", fmt::format("{} tokens; at most {} requests ran side by side, {} preemptions",
                            forecast.scheduler.pages * forecast.scheduler.page_tokens,
                            forecast.played.most_running, forecast.played.preemptions)},
      {"busy", fmt::format("{:.0f}% of the time",
                           100 * forecast.played.busy_seconds / forecast.played.seconds)}};
  if (forecast.bill) {
    const double millions = static_cast<double>(answered_tokens(forecast.result)) * 1e-6;
    const plan::Bill& bill = *forecast.bill;
    const std::string usd =
        bill.usd ? fmt::format("{:.4g} USD", *bill.usd / millions) : "no public price";
    const std::string energy = bill.it_kwh == bill.it_kwh
                                   ? fmt::format("{:.4g} kWh", bill.facility_kwh / millions)
                                   : "energy unknown: no published board power";
    pairs.emplace_back("per million generated tokens", usd + ", " + energy);
    pairs.emplace_back("paid for",
                       fmt::format("{} GPUs of whole nodes, busy or not", forecast.billed_gpus));
  }
  return format_pairs(pairs) + "\n" + endpoint_result_text(forecast.result);
}

int run_serve_plan(ServeArguments arguments) {
  FileSystem& files = posix_file_system();
  arguments.load.prompt = parse_token_lengths(arguments.prompt_tokens, "--prompt-tokens");
  arguments.load.answer = parse_token_lengths(arguments.answer_tokens, "--answer-tokens");
  if (arguments.system.empty() && arguments.measured.empty()) {
    fail(ErrorKind::usage,
         "which machine? give --system NAME (tutti plan systems) or --measured FILE (tutti bench "
         "inference --json)");
  }
  const spec::InferenceProgram program(find_served_model(files, arguments.model),
                                       inference_form(arguments.weights));
  std::optional<catalog::Catalog> catalog;
  const catalog::System* system = nullptr;
  if (!arguments.system.empty()) {
    catalog = catalog::load_catalog(files, catalog_folders(arguments.catalog));
    system = &catalog->system(arguments.system);
  }
  if (system != nullptr && system->largest_chips > 0 && arguments.gpus > system->largest_chips) {
    fail(ErrorKind::usage, "--gpus: {} are more than the {} that {} has", arguments.gpus,
         system->largest_chips, system->name);
  }
  if (program.model().heads % arguments.gpus != 0) {
    fail(ErrorKind::usage, "--gpus: {} do not share the {} heads of {} equally", arguments.gpus,
         program.model().heads, arguments.model);
  }
  ServeForecast forecast;
  if (!arguments.measured.empty()) {
    forecast.rates = measured_rates(files, arguments.measured, arguments.weights);
    forecast.rates_source = fmt::format("measured ({})", arguments.measured);
  } else {
    forecast.rates = plan::assumed_rates(system->chip, program.model());
    forecast.rates_source =
        "assumed shares of the data sheet's; not validated: no GPU has been measured serving";
  }
  if (system != nullptr) {
    forecast.memory = plan::serving_memory(program, system->chip.memory_bytes, arguments.gpus);
    if (forecast.memory.cache_tokens < arguments.engine.page_tokens) {
      print_message(
          fmt::format("tutti: DOES NOT FIT: {} of weights leave no memory for a cache on {} of {} "
                      "with {} each; "
                      "take more --gpus or narrower --weights\n",
                      format_bytes(forecast.memory.weight_bytes), arguments.gpus, system->chip.name,
                      format_bytes(system->chip.memory_bytes)));
      return exit_does_not_fit;
    }
  } else {
    forecast.memory.weight_bytes = static_cast<double>(program.weight_bytes());
    forecast.memory.cache_tokens = arguments.engine.max_sequences * program.model().context;
  }
  const int64_t most = arguments.engine.max_sequences * program.model().context;
  forecast.scheduler.page_tokens = arguments.engine.page_tokens;
  forecast.scheduler.pages =
      std::min(forecast.memory.cache_tokens, most) / arguments.engine.page_tokens;
  forecast.scheduler.max_sequences = arguments.engine.max_sequences;
  forecast.scheduler.prefill_tokens = arguments.engine.prefill_tokens;
  const plan::ServingCost cost(forecast.rates, program.model(), system, arguments.gpus);
  play(arguments, program, cost, forecast);
  if (system != nullptr) {
    warn_no_price(*catalog, *system);
    forecast.bill = bill_of_load(*catalog, *system, arguments, forecast.played);
    forecast.billed_gpus = plan::billed_chips(*system, arguments.gpus);
  }
  if (arguments.json) {
    print_json(forecast_json(arguments, forecast));
  } else {
    print_text(forecast_text(arguments, forecast));
  }
  return exit_ok;
}

}  // namespace

void add_plan_serve(CLI::App& group, Action& action) {
  const auto arguments = std::make_shared<ServeArguments>();
  CLI::App* command = group.add_subcommand(
      "serve", "Latency, throughput, cost and energy of serving a model on a system");
  command
      ->add_option("MODEL", arguments->model,
                   "Preset of recipes/models, run folder or Hugging Face folder")
      ->required();
  command->add_option("--system", arguments->system, "A system of the catalog (plan systems)");
  command->add_option("--gpus", arguments->gpus, "GPUs that share every matrix")
      ->capture_default_str()
      ->check(at_least(1));
  command
      ->add_option("--measured", arguments->measured,
                   "What 'tutti bench inference --json' printed on one such machine")
      ->type_name("FILE");
  command
      ->add_option("--weights", arguments->weights,
                   "Of the weights in memory: bf16, f32, int8, int4")
      ->type_name("TYPE")
      ->capture_default_str();
  command->add_option("--rate", arguments->load.rate, "Requests per second, on average")
      ->capture_default_str()
      ->check(between(1e-6, 1e6));
  command->add_option("--requests", arguments->load.requests, "Requests in all")
      ->capture_default_str()
      ->check(between(1, 100'000));
  command
      ->add_option("--prompt-tokens", arguments->prompt_tokens,
                   "Lengths of prompts: 128, 64-256 (uniform) or ~128 (log-normal, mean)")
      ->capture_default_str();
  command->add_option("--answer-tokens", arguments->answer_tokens, "Lengths of answers, likewise")
      ->capture_default_str();
  command->add_option("--max-sequences", arguments->engine.max_sequences, "Requests side by side")
      ->capture_default_str()
      ->check(between(1, 100'000));
  command
      ->add_option("--prefill-tokens", arguments->engine.prefill_tokens,
                   "Tokens of prompts in a step")
      ->capture_default_str()
      ->check(at_least(1));
  command
      ->add_option("--max-waiting", arguments->engine.max_waiting,
                   "Requests that wait; more are refused")
      ->capture_default_str()
      ->check(at_least(1));
  command
      ->add_option("--first-token-target", arguments->first_target,
                   "Goodput counts requests with their first token within it")
      ->capture_default_str();
  command
      ->add_option("--per-token-target", arguments->token_target,
                   "and so much time per further token")
      ->capture_default_str();
  command->add_option("--site", arguments->site, "A site of the catalog")->capture_default_str();
  add_price_option(*command, arguments->price);
  add_catalog_option(*command, arguments->catalog);
  command->add_option("--seed", arguments->load.seed, "Same seed, same load")
      ->capture_default_str();
  add_json_option(*command, arguments->json);
  command->footer(
      "Plays a Poisson load through the endpoint's scheduler. Rates of a machine are those that\n"
      "were measured on one (--measured), else assumed shares of the data sheet's.\n\n"
      "Examples:\n"
      "  tutti plan serve llama3.1-8b --system dgx-h100 --weights bf16 --rate 4\n"
      "  tutti bench inference --model gpt2-124m --weights bf16 --json > here.json\n"
      "  tutti plan serve gpt2-124m --measured here.json --rate 2");
  command->callback(
      [arguments, &action] { action = [arguments] { return run_serve_plan(*arguments); }; });
}

}  // namespace tutti::cli
