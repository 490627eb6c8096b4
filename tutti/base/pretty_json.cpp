#include "tutti/base/pretty_json.h"

namespace tutti {

std::string pretty_json(const Json& value) {
  return value.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace tutti
