// The models and adapters that the command line of `tutti endpoint` names.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "tutti/endpoint/model.h"

namespace tutti::cli {

// NAME=PATH, where NAME has no slash; or a path, which may have a "=".
std::pair<std::string, std::string> split_model(const std::string& text);

// An adapter of the command line: [MODEL:]NAME=PATH.
struct AdapterSource {
  std::string model;  // empty: the only one
  std::string name;
  std::string path;
};

// Throws usage where there are several `models` and it names none.
AdapterSource split_adapter(const std::string& text, size_t models);

// Reads those of a model that is called `name` into it.
void add_adapters(const std::vector<AdapterSource>& sources, const std::string& name,
                  endpoint::LoadedModel& model);

// Throws usage unless every adapter has a model among `models`, and a name of its own.
void check_names(const std::vector<AdapterSource>& sources, const std::vector<std::string>& models);

}  // namespace tutti::cli
