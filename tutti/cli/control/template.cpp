#include "tutti/cli/control/template.h"

#include <fmt/format.h>

#include <cctype>

#include "tutti/base/json.h"
#include "tutti/base/text.h"

namespace tutti::cli {
namespace {

constexpr int kPort = 29500;
constexpr int kTemplateGraceSeconds = 120;  // between SIGTERM, which saves, and SIGKILL

// At most 40 of a-z, 0-9 and '-', beginning and ending with a letter or digit.
std::string dns_label(const std::string& name) {
  std::string label;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    label += std::isalnum(byte) != 0 ? static_cast<char>(std::tolower(byte)) : '-';
  }
  label = label.substr(0, 40);
  while (!label.empty() && label.back() == '-') label.pop_back();
  while (!label.empty() && label.front() == '-') label.erase(0, 1);
  return label.empty() ? "tutti" : label;
}

std::string quoted(const std::string& text) { return dump_json(Json(text)); }  // JSON is YAML

// "cpu: "8", nvidia.com/gpu: "4"", as a flow mapping; empty: nothing said.
std::string limits(const TemplateJob& job) {
  std::string out;
  if (job.cores > 0) out += fmt::format("cpu: \"{}\"", job.cores);
  if (job.gpus > 0) {
    out += fmt::format("{}nvidia.com/gpu: \"{}\"", out.empty() ? "" : ", ", job.gpus);
  }
  return out;
}

// The pod's specification, `indent` deep; `environment` lines are the system's own.
std::string pod_spec(const TemplateJob& job, const std::string& container,
                     const std::string& environment, size_t indent) {
  const std::string resources = limits(job);
  std::string text = fmt::format(
      R"(terminationGracePeriodSeconds: {grace}
containers:
  - name: {container}
    image: {image}
    command: ["tutti", "train", {recipe}, "--run", {run}{copies}]
    env:
{environment}      - name: TUTTI_SECRET
        valueFrom:
          secretKeyRef: {{name: {name}-secret, key: token}}
{resources}    volumeMounts:
      - {{name: data, mountPath: /data}}
      - {{name: memory, mountPath: /dev/shm}}
volumes:
  - name: data
    persistentVolumeClaim: {{claimName: {claim}}}
  - name: memory
    emptyDir: {{medium: Memory}}
)",
      fmt::arg("grace", kTemplateGraceSeconds), fmt::arg("container", container),
      fmt::arg("image", quoted(job.image)), fmt::arg("recipe", quoted(job.recipe)),
      fmt::arg("run", quoted(job.run_folder)),
      fmt::arg("copies", job.copy_every == 0
                             ? ""
                             : fmt::format(R"(, "--peer-copies", "{}")", job.copy_every)),
      fmt::arg("environment", environment), fmt::arg("name", dns_label(job.name)),
      fmt::arg("claim", quoted(job.claim)),
      fmt::arg("resources",
               resources.empty()
                   ? ""
                   : fmt::format("    resources:\n      limits: {{{}}}\n", resources)));
  std::string out;
  for (const std::string_view line : split(text, '\n')) {
    if (!line.empty()) out += std::string(indent, ' ') + std::string(line) + "\n";
  }
  return out;
}

std::string head(const TemplateJob& job, const char* what_follows) {
  return fmt::format(
      "# Before: kubectl create secret generic {}-secret --from-literal=token=$(openssl rand -hex "
      "32)\n{}",
      dns_label(job.name), what_follows);
}

}  // namespace

std::string jobset_yaml(const TemplateJob& job) {
  const std::string name = dns_label(job.name);
  std::string environment = fmt::format(
      R"(      - name: RANK
        valueFrom:
          fieldRef: {{fieldPath: "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}
      - {{name: WORLD_SIZE, value: "{pods}"}}
      - {{name: LOCAL_RANK, value: "0"}}
      - {{name: LOCAL_WORLD_SIZE, value: "1"}}
      - {{name: MASTER_ADDR, value: {name}-ranks-0-0.{name}}}
      - {{name: MASTER_PORT, value: "{port}"}}
)",
      fmt::arg("pods", job.pods), fmt::arg("name", name), fmt::arg("port", kPort));
  return head(job,
              "# Exit code 75 and failures start all ranks again from the newest checkpoint; 2 and "
              "93 end the job.\n") +
         fmt::format(R"(apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  name: {name}
spec:
  network: {{enableDNSHostnames: true, subdomain: {name}}}
  failurePolicy:
    maxRestarts: {restarts}
    rules:
      - {{name: wouldfailagain, action: FailJobSet, onJobFailureReasons: [PodFailurePolicy]}}
  replicatedJobs:
    - name: ranks
      replicas: 1
      template:
        spec:
          parallelism: {pods}
          completions: {pods}
          completionMode: Indexed
          backoffLimit: 0
          podFailurePolicy:
            rules:
              - action: FailJob
                onExitCodes: {{containerName: tutti, operator: In, values: [2, 93]}}
          template:
            spec:
              restartPolicy: Never
)",
                     fmt::arg("name", name), fmt::arg("restarts", job.max_restarts),
                     fmt::arg("pods", job.pods)) +
         pod_spec(job, "tutti", environment, 14);
}

std::string pytorchjob_yaml(const TemplateJob& job) {
  std::string text = head(job,
                          "# Exit code 75 and failures start ranks again where they were, from the "
                          "newest checkpoint or copies\n"
                          "# in memory. No restart policy of Kubeflow's ends a job at 2 and 93, "
                          "which would fail again: the\n"
                          "# limit of restarts does.\n") +
                     fmt::format(R"(apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata:
  name: {}
spec:
  runPolicy: {{cleanPodPolicy: Running, backoffLimit: {}}}
  pytorchReplicaSpecs:
)",
                                 dns_label(job.name), job.max_restarts);
  const auto replicas = [&](const char* kind, int64_t count) {
    text += fmt::format(
        "    {}:\n      replicas: {}\n      restartPolicy: OnFailure\n      template:\n        "
        "spec:\n",
        kind, count);
    // The operator knows the container by this name.
    text += pod_spec(job, "pytorch",
                     "      - {name: LOCAL_RANK, value: \"0\"}\n"
                     "      - {name: LOCAL_WORLD_SIZE, value: \"1\"}\n",
                     10);
  };
  replicas("Master", 1);
  if (job.pods > 1) replicas("Worker", job.pods - 1);
  return text;
}

}  // namespace tutti::cli
