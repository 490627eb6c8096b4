#include "tutti/object/curl_transport.h"

#include <curl/curl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstring>

#include "tutti/base/text.h"

namespace tutti::object {
namespace {

constexpr size_t kLargestBody = size_t{256} << 20;  // of what is held in memory

struct Exchange {
  CURL* handle = nullptr;
  const Request* request = nullptr;
  Response response;
  bool too_long = false;

  bool succeeded() const {
    long status = 0;
    curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &status);
    return status >= 200 && status < 300;
  }
};

size_t take_body(char* data, size_t /*one*/, size_t size, void* user) {
  auto& exchange = *static_cast<Exchange*>(user);
  Response& response = exchange.response;
  if (exchange.request->into == nullptr || !exchange.succeeded()) {
    exchange.too_long = response.body.size() + size > kLargestBody;
    if (exchange.too_long) return 0;
    response.body.append(data, size);
    return size;
  }
  exchange.too_long = size > exchange.request->into_size - response.into_size;
  if (exchange.too_long) return 0;
  std::memcpy(exchange.request->into + response.into_size, data, size);
  response.into_size += size;
  return size;
}

size_t take_header(char* data, size_t /*one*/, size_t size, void* user) {
  auto& response = static_cast<Exchange*>(user)->response;
  const std::string_view line(data, size);
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) {
    if (starts_with(line, "HTTP/")) response.headers.clear();  // of an interim answer
    return size;
  }
  std::string name(line.substr(0, colon));
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  response.headers[name] = trim(line.substr(colon + 1));
  return size;
}

// What will not go away by itself.
bool lasts(CURLcode code) {
  switch (code) {
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_WRITE_ERROR:
    case CURLE_OUT_OF_MEMORY: return true;
    default: return false;
  }
}

class HeaderList {
 public:
  HeaderList() = default;
  ~HeaderList() { curl_slist_free_all(list_); }
  HeaderList(const HeaderList&) = delete;
  HeaderList& operator=(const HeaderList&) = delete;
  void add(const std::string& line) { list_ = curl_slist_append(list_, line.c_str()); }
  curl_slist* get() const { return list_; }

 private:
  curl_slist* list_ = nullptr;
};

}  // namespace

CurlTransport::CurlTransport(std::string ca_bundle, const TransportLimits& limits)
    : ca_bundle_(std::move(ca_bundle)), limits_(limits) {
  static const CURLcode ready = curl_global_init(CURL_GLOBAL_DEFAULT);
  if (ready != CURLE_OK) throw TransportError("libcurl does not start", false);
}

CurlTransport::~CurlTransport() {
  for (void* handle : idle_) curl_easy_cleanup(handle);
}

void* CurlTransport::take_handle() {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      void* handle = idle_.back();
      idle_.pop_back();
      return handle;
    }
  }
  void* handle = curl_easy_init();
  if (handle == nullptr) throw TransportError("libcurl has no memory", true);
  return handle;
}

void CurlTransport::give_back(void* handle) {
  curl_easy_reset(handle);  // but for its connections
  const std::lock_guard lock(mutex_);
  idle_.push_back(handle);
}

Response CurlTransport::send(const Request& request) {
  CURL* handle = take_handle();
  Exchange exchange;
  exchange.handle = handle;
  exchange.request = &request;
  const std::string query = encoded_query(request);
  const std::string url = fmt::format("{}://{}{}{}{}", request.scheme, request.host,
                                      encoded_path(request), query.empty() ? "" : "?", query);
  HeaderList headers;
  headers.add("Host: " + request.host);
  headers.add("Expect:");  // a body is sent at once
  if (request.headers.count("content-type") == 0) headers.add("Content-Type:");
  for (const auto& [name, value] : request.headers) {
    // "name;" is how libcurl sends a header without a value.
    headers.add(value.empty() ? name + ";" : name + ": " + value);
  }
  std::string reason(CURL_ERROR_SIZE, '\0');
  curl_easy_setopt(handle, CURLOPT_URL, url.c_str());
  curl_easy_setopt(handle, CURLOPT_PATH_AS_IS, 1L);
  curl_easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(handle, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(handle, CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, take_body);
  curl_easy_setopt(handle, CURLOPT_WRITEDATA, &exchange);
  curl_easy_setopt(handle, CURLOPT_HEADERFUNCTION, take_header);
  curl_easy_setopt(handle, CURLOPT_HEADERDATA, &exchange);
  curl_easy_setopt(handle, CURLOPT_ERRORBUFFER, reason.data());
  curl_easy_setopt(handle, CURLOPT_BUFFERSIZE, 512L << 10);
  curl_easy_setopt(handle, CURLOPT_UPLOAD_BUFFERSIZE, 2L << 20);
  curl_easy_setopt(handle, CURLOPT_CONNECTTIMEOUT_MS,
                   static_cast<long>(limits_.connect_seconds * 1000));
  curl_easy_setopt(handle, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(handle, CURLOPT_LOW_SPEED_TIME,
                   std::max(1L, static_cast<long>(limits_.stall_seconds)));
  if (!ca_bundle_.empty()) curl_easy_setopt(handle, CURLOPT_CAINFO, ca_bundle_.c_str());
  if (request.method == "HEAD") {
    curl_easy_setopt(handle, CURLOPT_NOBODY, 1L);
  } else if (request.method != "GET") {
    if (request.method != "DELETE" || !request.body.empty()) {
      curl_easy_setopt(handle, CURLOPT_POSTFIELDSIZE_LARGE,
                       static_cast<curl_off_t>(request.body.size()));
      curl_easy_setopt(handle, CURLOPT_POSTFIELDS, request.body.empty() ? "" : request.body.data());
    }
    curl_easy_setopt(handle, CURLOPT_CUSTOMREQUEST, request.method.c_str());
  }
  const CURLcode code = curl_easy_perform(handle);
  long status = 0;
  curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &status);
  if (code != CURLE_OK) {
    const std::string detail = reason.c_str();
    curl_easy_cleanup(handle);  // and its connection, whose state is unknown
    throw TransportError(exchange.too_long ? "more bytes came than were asked for"
                         : detail.empty()  ? curl_easy_strerror(code)
                                           : detail,
                         !lasts(code));
  }
  give_back(handle);
  exchange.response.status = static_cast<int>(status);
  return std::move(exchange.response);
}

}  // namespace tutti::object
