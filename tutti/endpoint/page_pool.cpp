#include "tutti/endpoint/page_pool.h"

#include "tutti/base/check.h"

namespace tutti::endpoint {

PagePool::PagePool(int64_t pages, int64_t page_tokens, int64_t roots)
    : page_tokens_(page_tokens),
      states_(static_cast<size_t>(pages)),
      last_link_(static_cast<Link>(roots - 1)) {
  // The first pages first: pages that follow each other are read without being gathered.
  for (int64_t page = pages; page-- > 0;) free_.push_back(static_cast<int32_t>(page));
}

std::string PagePool::key_of(Link parent, std::span<const int32_t> tokens) {
  std::string key(reinterpret_cast<const char*>(&parent), sizeof parent);
  key.append(reinterpret_cast<const char*>(tokens.data()), tokens.size_bytes());
  return key;
}

int32_t PagePool::allocate() {
  int32_t page = -1;
  if (!free_.empty()) {
    page = free_.back();
    free_.pop_back();
  } else if (!unused_.empty()) {
    page = unused_.front();
    unused_.pop_front();
    State& state = states_[static_cast<size_t>(page)];
    published_.erase(state.key);
    state.key.clear();
  } else {
    return -1;
  }
  states_[static_cast<size_t>(page)].users = 1;
  ++used_;
  return page;
}

void PagePool::retain(int32_t page) {
  State& state = states_[static_cast<size_t>(page)];
  if (state.users++ > 0) return;
  TUTTI_CHECK(!state.key.empty(), "page {} is free", page);
  unused_.erase(state.unused);
  ++used_;
}

void PagePool::release(int32_t page) {
  State& state = states_[static_cast<size_t>(page)];
  TUTTI_CHECK(state.users > 0, "page {} is not in use", page);
  if (--state.users > 0) return;
  --used_;
  if (state.key.empty()) {
    free_.push_back(page);
  } else {
    state.unused = unused_.insert(unused_.end(), page);
  }
}

void PagePool::release_all(std::vector<int32_t>& pages) {
  for (; !pages.empty(); pages.pop_back()) release(pages.back());
}

PagePool::Link PagePool::publish(int32_t page, Link parent, std::span<const int32_t> tokens) {
  TUTTI_CHECK(static_cast<int64_t>(tokens.size()) == page_tokens_,
              "a page of {} tokens is not full", tokens.size());
  State& state = states_[static_cast<size_t>(page)];
  const auto [at, added] = published_.try_emplace(key_of(parent, tokens));
  if (added) {
    at->second = {page, ++last_link_};
    state.key = at->first;
  }
  return at->second.link;
}

PagePool::Match PagePool::match(std::span<const int32_t> tokens, int64_t limit, Link root) {
  Match out;
  out.link = root;
  const auto page_tokens = static_cast<size_t>(page_tokens_);
  while (static_cast<int64_t>(out.pages.size()) < limit && tokens.size() >= page_tokens) {
    const auto found = published_.find(key_of(out.link, tokens.first(page_tokens)));
    if (found == published_.end()) break;
    retain(found->second.page);
    out.pages.push_back(found->second.page);
    out.link = found->second.link;
    tokens = tokens.subspan(page_tokens);
  }
  return out;
}

}  // namespace tutti::endpoint
