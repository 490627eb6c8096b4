// The page of the control plane: `tutti serve`.
//
//   GET  /            the page, or the form to log in
//   GET  /sections    its live parts (JSON) that have changed since If-None-Match; with
//                     `Prefer: wait=SECONDS` (at most 20) the answer comes when one does
//   POST /login       token -> cookie                      POST /logout
//   POST /submit      first what it would cost, then, confirmed, a job
//   POST /steer       cancel, requeue, hold, release
//   GET  /metrics     for Prometheus; needs the role of an operator in all projects, by cookie or
//                     as `Authorization: Bearer TOKEN`
//
// Without a login nothing is shown; users may see and do what the commands allow them
// (control/people/roles.h). Requests for another host's name are refused (a page elsewhere whose
// name was made to point here), as are forms that a browser says come from another site; forms need
// the key of their session, cookies are not readable by scripts, not sent from other sites, and
// behind a proxy with TLS not sent without it. Bodies are at most 256 KiB; how long a client may
// take and how many connections it may have is in http_server.h, how many wrong tokens in
// control/people/guess_limit.h. Nothing is logged but errors, and no token.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/control/store/folder.h"
#include "tutti/control/web/forms.h"

namespace tutti::control {

struct WebOptions {
  ControlFolder folder;
  std::string address = "127.0.0.1";
  int port = 0;  // 0: any free one
  std::vector<std::string>
      hosts;  // names under which it may be asked, beside address and localhost
  std::vector<std::string> proxies;  // their X-Forwarded-For and X-Forwarded-Proto are believed
  std::vector<std::string> recipes;  // names for the form
  WebSubmit submit;
  std::function<bool()> controller_runs;
  std::function<void()> ensure_controller;  // after something was asked for
  std::function<void(const Job&)> ended;    // of jobs that were asked to end and have
  std::function<void(const std::string&)> log;
};

class WebServer {
 public:
  // Listens; throws as HttpServer does (http_server.h).
  explicit WebServer(WebOptions options);
  ~WebServer();
  WebServer(const WebServer&) = delete;
  WebServer& operator=(const WebServer&) = delete;

  int port() const;
  void run();   // returns after stop()
  void stop();  // from any thread

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string_view web_script();  // script.cpp

}  // namespace tutti::control
