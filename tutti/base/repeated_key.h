// JSON objects that have a key twice: valid by the grammar, and readers disagree about which
// counts.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tutti/base/json.h"

namespace tutti {

// As Json::parse(text, nullptr, false): a value that is not valid is discarded. The first key that
// an object of it has twice goes to `repeated`; of such members the value has the last.
Json parse_json(std::string_view text, std::optional<std::string>& repeated);

// As parse_json (json.h), for what people write: throws corrupt also naming `origin` and the key
// that an object has twice.
Json parse_unique_json(std::string_view text, std::string_view origin);

}  // namespace tutti
