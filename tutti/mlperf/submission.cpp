#include "tutti/mlperf/submission.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "tutti/base/error.h"
#include "tutti/base/pretty_json.h"
#include "tutti/base/text.h"
#include "tutti/mlperf/system_description.h"

namespace tutti::mlperf {
namespace {

constexpr const char* kNone = "N/A";

struct Availability {
  const char* log;
  const char* description;
};
constexpr std::array<Availability, 4> kAvailabilities = {{
    {"onprem", "Available on-premise"},
    {"cloud", "Available cloud"},
    {"preview", "Preview"},
    {"research", "Research, Development, or Internal (RDI)"},
}};

std::string implementation_of(const Submission& submission) {
  return folder_name("tutti-" + submission.facts.version);
}

std::string readme_of_implementation(const Submission& s) {
  return fmt::format(
      "# {0} with Tutti {1}\n\n"
      "`recipe.yaml` is the whole configuration: model, initialisation, data, order of the data,\n"
      "optimizer, learning-rate schedule, evaluation and target; every key with its value. Only\n"
      "`train.seed` differs from run to run. `source.json` names the program to the commit and to "
      "the bit.\n\n"
      "    tutti train recipe.yaml --run RUN train.seed=SEED    # writes RUN/mlperf.log\n\n"
      "Data are read in an order that is a function of the seed; each sample is used once per "
      "epoch.\n",
      s.benchmark, s.facts.version);
}

std::string readme_of_system(const Submission& s, const std::string& implementation) {
  std::string runs;
  for (size_t i = 0; i < s.runs.size(); ++i) {
    runs += fmt::format("| {} | result_{}.txt | {} |\n", i, i, s.runs[i].first);
  }
  return fmt::format(
      "# {} on {}\n\n"
      "Implementation: `../implementations/{}`.\n\n"
      "1. `sh setup.sh` builds the program, once.\n"
      "2. `sh init_datasets.sh` checks that the corpora are there and whole.\n"
      "3. `SEED=1 RUN=run_1 sh run_and_time.sh` is one run; its log is `RUN/mlperf.log`.\n\n"
      "All runs that were started are here, in this order; seeds were fixed before the first:\n\n"
      "| run | log | seed |\n|---|---|---|\n{}",
      s.benchmark, s.facts.system_name, implementation, runs);
}

// A word of a POSIX shell.
std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string dataset_script(const Submission& s) {
  std::string out = "#!/bin/sh\n# The corpora that the runs read:\n";
  for (const std::string& line : s.corpus_facts) out += "#   " + line + "\n";
  out += "set -e\n";
  for (const std::string& prefix : s.corpora) {
    out += fmt::format("tutti data inspect {}\n", quoted(prefix));
  }
  return out;
}

void write_text(FileSystem& files, const std::string& folder, const std::string& name,
                const std::string& text) {
  write_file_atomic(files, join_path(folder, name), text);
}

}  // namespace

std::string folder_name(const std::string& name) {
  std::string out;
  for (const char c : name) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '_';
    if (plain) out += c;
    else if (!out.empty() && out.back() != '-') out += '-';
  }
  while (!out.empty() && (out.back() == '-' || out.back() == '.')) out.pop_back();
  out.erase(0, out.find_first_not_of("-."));
  return out.empty() ? "system" : out;
}

std::string availability(const std::string& status) {
  std::vector<std::string> words;
  for (const Availability& known : kAvailabilities) {
    if (status == known.log) return known.description;
    words.emplace_back(known.log);
  }
  fail(ErrorKind::usage, "status '{}': accepted are {}", status, join(words, ", "));
}

Json system_description(const HostSheet& host, const Binary& binary, const SubmissionFacts& facts) {
  const auto or_none = [](const std::string& text) { return text.empty() ? kNone : text; };
  Json out = {{"submitter", facts.submitter},
              {"division", facts.division},
              {"status", availability(facts.status)},
              {"system_name", facts.system_name},
              {"number_of_nodes", "1"},
              {"host_processors_per_node", std::to_string(host.sockets)},
              {"host_processor_model_name", or_none(host.processor)},
              {"host_processor_core_count", std::to_string(host.cores_per_socket)},
              {"host_processor_vcpu_count", std::to_string(host.threads)},
              {"host_processor_frequency", or_none(host.frequency)},
              {"host_processor_caches", or_none(host.caches)},
              {"host_processor_interconnect", kNone},
              {"host_memory_capacity", or_none(host.memory)},
              {"host_storage_type", or_none(host.storage_type)},
              {"host_storage_capacity", or_none(host.storage)},
              {"host_networking", or_none(host.network)},
              {"host_networking_topology", kNone},
              {"host_memory_configuration", fmt::format("{} NUMA nodes", host.numa_nodes)}};
  // The processors of the host do all the work.
  for (const char* field : {"accelerator_model_name", "accelerator_host_interconnect",
                            "accelerator_frequency", "accelerator_on-chip_memories",
                            "accelerator_memory_configuration", "accelerator_memory_capacity",
                            "accelerator_interconnect", "accelerator_interconnect_topology"}) {
    out[field] = kNone;
  }
  out["accelerators_per_node"] = "0";
  out["cooling"] = "";
  out["hw_notes"] = "";
  out["framework"] = "Tutti " + facts.version;
  Json stack = Json::object();
  stack["kernel"] = or_none(host.kernel);
  stack["executable_xxh3"] = or_none(binary.executable_hash);
  for (const std::string_view entry : split(binary.libraries, ',')) {
    const auto words = split(trim(entry), ' ');
    if (words.size() == 2) stack[std::string(words[0])] = "build id " + std::string(words[1]);
  }
  out["other_software_stack"] = std::move(stack);
  out["operating_system"] = or_none(host.operating_system);
  out["sw_notes"] = "";
  for (const auto& [field, value] : facts.fields) {
    if (!out.contains(field) || !out[field].is_string()) {
      fail(ErrorKind::usage, "'{}' is not a field of a system description; did you mean '{}'?",
           field, nearest_word(field, system_fields()));
    }
    out[field] = value;
  }
  return out;
}

void write_submission(FileSystem& files, const Submission& s) {
  const std::string system = folder_name(s.facts.system_name);
  const std::string implementation = implementation_of(s);
  const std::string results =
      join_path(join_path(join_path(s.folder, "results"), system), s.benchmark);
  const std::string benchmark = join_path(join_path(s.folder, "benchmarks"), s.benchmark);
  const std::string code = join_path(join_path(benchmark, "implementations"), implementation);
  const std::string description_folder = join_path(benchmark, system);
  const std::string systems = join_path(s.folder, "systems");
  files.remove_tree(s.folder);
  for (const std::string& folder : {results, code, description_folder, systems}) {
    files.create_directories(folder);
  }
  write_text(files, systems, system + ".json", pretty_json(s.system));
  for (size_t i = 0; i < s.runs.size(); ++i) {
    const std::string& log = s.runs[i].second;
    write_text(files, results, fmt::format("result_{}.txt", i),
               files.exists(log) ? read_file(files, log) : std::string());
  }
  const Json source = {{"program", "Tutti"},
                       {"version", s.facts.version},
                       {"executable_xxh3", s.binary.executable_hash},
                       {"libraries", s.binary.libraries}};
  write_text(files, code, "README.md", readme_of_implementation(s));
  write_text(files, code, "recipe.yaml", s.recipe_yaml);
  write_text(files, code, "source.json", pretty_json(source));
  const std::string recipe = "../implementations/" + implementation + "/recipe.yaml";
  write_text(files, description_folder, system + "_" + implementation + ".json",
             pretty_json({{"implementation", implementation},
                          {"framework", "Tutti " + s.facts.version},
                          {"configuration", recipe}}));
  write_text(files, description_folder, "README.md", readme_of_system(s, implementation));
  write_text(
      files, description_folder, "setup.sh",
      fmt::format("#!/bin/sh\n# In the sources of Tutti {}:\nset -e\nmake deps\nmake build\n",
                  s.facts.version));
  write_text(files, description_folder, "init_datasets.sh", dataset_script(s));
  write_text(
      files, description_folder, "run_and_time.sh",
      fmt::format("#!/bin/sh\n# Paths of corpora are relative to the current folder.\nset -e\n"
                  "exec tutti train \"$(dirname \"$0\")/{}\" --run \"${{RUN:?}}\" "
                  "train.seed=\"${{SEED:?}}\"\n",
                  recipe));
}

}  // namespace tutti::mlperf
