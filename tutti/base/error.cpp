#include "tutti/base/error.h"

namespace tutti {

const char* error_kind_name(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::usage: return "usage";
    case ErrorKind::not_found: return "not_found";
    case ErrorKind::permission: return "permission";
    case ErrorKind::corrupt: return "corrupt";
    case ErrorKind::no_space: return "no_space";
    case ErrorKind::io: return "io";
    case ErrorKind::unsupported: return "unsupported";
    case ErrorKind::diverged: return "diverged";
    case ErrorKind::peer: return "peer";
  }
  return "unknown";
}

int exit_code(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::usage:
    case ErrorKind::not_found:
    case ErrorKind::unsupported: return exit_usage;
    case ErrorKind::diverged: return exit_do_not_restart;
    default: return exit_failed;
  }
}

}  // namespace tutti
