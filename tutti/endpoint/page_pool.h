// The pages of a cache of keys and values: which are free, how many texts use each, and which hold
// the start of a text that may come again.
//
// A full page can be published: it is then found by its tokens and those of all pages before it.
// What is compared are the tokens themselves, link by link of the chain; there is no hash that
// could collide. A published page that no text uses stays until a page is needed and none is free:
// the longest unused goes first, and of one text the last page first, so that no page outlives
// those that it needs.
#pragma once

#include <cstdint>
#include <list>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace tutti::endpoint {

class PagePool {
 public:
  // roots: texts begin with one of so many links, 0 to roots - 1; those of different ones share no
  // pages.
  PagePool(int64_t pages, int64_t page_tokens, int64_t roots = 1);

  // A page for one text; -1 when all are in use.
  int32_t allocate();
  // One more text uses a page that is in use or published.
  void retain(int32_t page);
  // One text fewer uses it.
  void release(int32_t page);
  // Of a text that ends or gives up its pages.
  void release_all(std::vector<int32_t>& pages);

  // The chain that published pages belong to; a root before the first page of a text.
  using Link = uint64_t;
  // Publishes a full page that follows `parent` in its text, unless another with the same tokens is
  // there. Returns the link behind it.
  Link publish(int32_t page, Link parent, std::span<const int32_t> tokens);

  // Pages at the start of a text of `root` that hold `tokens`, as many full ones as there are, at
  // most `limit`. They are retained.
  struct Match {
    std::vector<int32_t> pages;
    Link link = 0;  // behind the last; without pages the root
  };
  Match match(std::span<const int32_t> tokens, int64_t limit, Link root = 0);

  int64_t pages() const { return static_cast<int64_t>(states_.size()); }
  int64_t page_tokens() const { return page_tokens_; }
  int64_t used() const { return used_; }
  int64_t available() const { return pages() - used_; }  // to allocate: free, or published only

 private:
  struct State {
    int64_t users = 0;
    std::string key;                      // where it is published; empty: it is not
    std::list<int32_t>::iterator unused;  // its position, where it is published and has no users
  };
  struct Published {
    int32_t page = -1;
    Link link = 0;
  };
  static std::string key_of(Link parent, std::span<const int32_t> tokens);

  int64_t page_tokens_;
  std::vector<State> states_;
  std::vector<int32_t> free_;
  std::list<int32_t> unused_;  // published without users, the longest unused first
  std::unordered_map<std::string, Published> published_;
  Link last_link_ = 0;
  int64_t used_ = 0;
};

}  // namespace tutti::endpoint
