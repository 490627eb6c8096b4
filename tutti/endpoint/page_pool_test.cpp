#include "tutti/endpoint/page_pool.h"

#include <gtest/gtest.h>

namespace tutti::endpoint {
namespace {

using Tokens = std::vector<int32_t>;

// A text of full pages, published from its first page on.
std::vector<int32_t> published(PagePool& pool, const Tokens& tokens) {
  std::vector<int32_t> pages;
  PagePool::Link link = 0;
  const auto size = static_cast<size_t>(pool.page_tokens());
  for (size_t first = 0; first + size <= tokens.size(); first += size) {
    pages.push_back(pool.allocate());
    link = pool.publish(pages.back(), link, std::span(tokens).subspan(first, size));
  }
  return pages;
}

TEST(PagePool, CountsWhatIsUsed) {
  PagePool pool(3, 2);
  std::vector<int32_t> pages = {pool.allocate(), pool.allocate(), pool.allocate()};
  EXPECT_EQ(pages, (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(pool.allocate(), -1);
  EXPECT_EQ(pool.used(), 3);
  pool.release_all(pages);
  EXPECT_TRUE(pages.empty());
  EXPECT_EQ(pool.available(), 3);
}

TEST(PagePool, FindsPagesByAllTokensBeforeThem) {
  PagePool pool(8, 2);
  const std::vector<int32_t> pages = published(pool, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(pool.match(Tokens{1, 2, 3, 4, 9, 9}, 9).pages,
            (std::vector<int32_t>{pages[0], pages[1]}));
  EXPECT_TRUE(pool.match(Tokens{3, 4}, 9).pages.empty());  // not at the start
  EXPECT_TRUE(pool.match(Tokens{1}, 9).pages.empty());     // not full
  EXPECT_EQ(pool.match(Tokens{1, 2, 3, 4, 5, 6}, 1).pages.size(), 1U);
}

TEST(PagePool, TextsWithTheSameStartShareItsPages) {
  PagePool pool(8, 2);
  std::vector<int32_t> first = published(pool, {1, 2, 3, 4});
  PagePool::Match second = pool.match(Tokens{1, 2, 3, 4, 5}, 2);
  EXPECT_EQ(second.pages, first);
  EXPECT_EQ(pool.used(), 2);
  pool.release_all(first);
  EXPECT_EQ(pool.used(), 2);
  pool.release_all(second.pages);
  EXPECT_EQ(pool.used(), 0);
  EXPECT_EQ(pool.match(Tokens{1, 2, 3, 4}, 2).pages.size(), 2U);  // there still
  EXPECT_EQ(pool.used(), 2);
}

TEST(PagePool, TheSameTokensArePublishedOnce) {
  PagePool pool(8, 2);
  const std::vector<int32_t> first = published(pool, {1, 2, 3, 4});
  std::vector<int32_t> second = published(pool, {1, 2, 3, 5});
  EXPECT_EQ(pool.match(Tokens{1, 2, 3, 5}, 2).pages, (std::vector<int32_t>{first[0], second[1]}));
}

TEST(PagePool, TheLongestUnusedGoesFirstAndOfATextItsEnd) {
  PagePool pool(4, 1);
  std::vector<int32_t> older = published(pool, {1, 2});
  std::vector<int32_t> newer = published(pool, {7, 8});
  pool.release_all(older);
  pool.release_all(newer);
  EXPECT_NE(pool.allocate(), -1);  // of token 2
  PagePool::Match match = pool.match(Tokens{1, 2}, 2);
  EXPECT_EQ(match.pages.size(), 1U);
  pool.release_all(match.pages);  // and is now the youngest
  EXPECT_NE(pool.allocate(), -1);
  EXPECT_NE(pool.allocate(), -1);
  EXPECT_TRUE(pool.match(Tokens{7, 8}, 2).pages.empty());
  EXPECT_EQ(pool.match(Tokens{1}, 1).pages.size(), 1U);
  EXPECT_EQ(pool.allocate(), -1);
}

}  // namespace
}  // namespace tutti::endpoint
