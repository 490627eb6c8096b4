#include "tutti/object/xml.h"

#include <fmt/format.h>

#include <algorithm>
#include <pugixml.hpp>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/object/uri.h"

namespace tutti::object {
namespace {

// Entities are decoded; DTDs are not read (pugixml never expands what they define).
pugi::xml_node load(pugi::xml_document& document, std::string_view xml, const char* root,
                    std::string_view what) {
  const pugi::xml_parse_result result = document.load_buffer(xml.data(), xml.size());
  if (!result) {
    fail(ErrorKind::corrupt, "{}: the answer is not XML: {} at byte {} of {}", what,
         result.description(), result.offset, xml.size());
  }
  const pugi::xml_node node = document.child(root);
  if (!node) {
    fail(ErrorKind::corrupt, "{}: the answer is <{}>, not <{}>", what,
         printable(document.document_element().name()), root);
  }
  return node;
}

std::string need_text(pugi::xml_node node, const char* name, std::string_view what) {
  const pugi::xml_node child = node.child(name);
  if (!child) {
    fail(ErrorKind::corrupt, "{}: <{}> in the answer lacks <{}>", what, node.name(), name);
  }
  return child.text().get();
}

int64_t need_size(pugi::xml_node node, std::string_view what) {
  const std::string text = need_text(node, "Size", what);
  size_t used = 0;
  int64_t size = -1;
  try {
    size = std::stoll(text, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  if (used == 0 || used != text.size() || size < 0) {
    fail(ErrorKind::corrupt, "{}: the answer gives the size '{}'", what, printable(text));
  }
  return size;
}

bool is_truncated(pugi::xml_node node) {
  return std::string_view(node.child("IsTruncated").text().get()) == "true";
}

// Keys are asked for with encoding-type=url: XML cannot hold every byte of a name. Stores write a
// space as %20 or, as forms do, as +; all write a + as %2B.
std::string decoded(pugi::xml_node root, std::string key) {
  if (std::string_view(root.child("EncodingType").text().get()) != "url") return key;
  std::replace(key.begin(), key.end(), '+', ' ');
  return percent_decode(key);
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  }
  return out;
}

}  // namespace

ListPage parse_list(std::string_view xml, std::string_view what) {
  pugi::xml_document document;
  const pugi::xml_node root = load(document, xml, "ListBucketResult", what);
  ListPage page;
  for (const pugi::xml_node node : root.children("Contents")) {
    page.objects.push_back({decoded(root, need_text(node, "Key", what)), need_size(node, what)});
  }
  for (const pugi::xml_node node : root.children("CommonPrefixes")) {
    page.prefixes.push_back(decoded(root, need_text(node, "Prefix", what)));
  }
  if (is_truncated(root)) page.next = need_text(root, "NextContinuationToken", what);
  return page;
}

UploadPage parse_uploads(std::string_view xml, std::string_view what) {
  pugi::xml_document document;
  const pugi::xml_node root = load(document, xml, "ListMultipartUploadsResult", what);
  UploadPage page;
  for (const pugi::xml_node node : root.children("Upload")) {
    page.uploads.push_back(
        {decoded(root, need_text(node, "Key", what)), need_text(node, "UploadId", what)});
  }
  if (is_truncated(root)) {
    page.next_key = decoded(root, need_text(root, "NextKeyMarker", what));
    page.next_id = root.child("NextUploadIdMarker").text().get();
  }
  return page;
}

std::string parse_upload_id(std::string_view xml, std::string_view what) {
  pugi::xml_document document;
  const pugi::xml_node root = load(document, xml, "InitiateMultipartUploadResult", what);
  return need_text(root, "UploadId", what);
}

std::string parse_completed(std::string_view xml, std::string_view what, StoreError& error) {
  error = parse_error(xml);
  if (!error.code.empty()) return {};
  pugi::xml_document document;
  const pugi::xml_node root = load(document, xml, "CompleteMultipartUploadResult", what);
  return need_text(root, "ETag", what);
}

StoreError parse_error(std::string_view xml) {
  pugi::xml_document document;
  StoreError error;
  if (!document.load_buffer(xml.data(), xml.size())) return error;
  const pugi::xml_node root = document.child("Error");
  error.code = root.child("Code").text().get();
  error.message = root.child("Message").text().get();
  error.server_time = root.child("ServerTime").text().get();
  return error;
}

std::string completion_xml(const std::vector<UploadPart>& parts) {
  std::string out = "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">";
  for (const UploadPart& part : parts) {
    out += fmt::format("<Part><PartNumber>{}</PartNumber><ETag>{}</ETag>", part.number,
                       escaped(part.etag));
    if (!part.sha256.empty()) {
      out += fmt::format("<ChecksumSHA256>{}</ChecksumSHA256>", escaped(part.sha256));
    }
    out += "</Part>";
  }
  return out + "</CompleteMultipartUpload>";
}

}  // namespace tutti::object
