#include "tutti/data/tokenizers/grapheme.h"

#include <unicode/uchar.h>

#include "tutti/data/tokenizers/utf8.h"

namespace tutti::data {
namespace {

int break_class(char32_t c) {
  return u_getIntPropertyValue(static_cast<UChar32>(c), UCHAR_GRAPHEME_CLUSTER_BREAK);
}

// What matters of the characters so far.
struct ClusterState {
  int last = U_GCB_OTHER;
  bool pictograph = false;  // a pictograph and what extends it, up to `last`
  bool joined = false;      // a pictograph, what extends it and a ZERO WIDTH JOINER
  int flags = 0;            // regional indicators
};

void take(ClusterState& state, char32_t c, int kind) {
  state.joined = state.pictograph && kind == U_GCB_ZWJ;
  const bool extends = kind == U_GCB_EXTEND || kind == U_GCB_ZWJ;
  state.pictograph = (state.pictograph && extends) ||
                     u_hasBinaryProperty(static_cast<UChar32>(c), UCHAR_EXTENDED_PICTOGRAPHIC) != 0;
  if (kind == U_GCB_REGIONAL_INDICATOR) ++state.flags;
  state.last = kind;
}

bool is_control_class(int kind) {
  return kind == U_GCB_CONTROL || kind == U_GCB_CR || kind == U_GCB_LF;
}

// Rules GB3 to GB13.
bool goes_on(const ClusterState& state, char32_t c, int kind) {
  const int last = state.last;
  if (last == U_GCB_CR && kind == U_GCB_LF) return true;
  if (is_control_class(last) || is_control_class(kind)) return false;
  if (last == U_GCB_L &&
      (kind == U_GCB_L || kind == U_GCB_V || kind == U_GCB_LV || kind == U_GCB_LVT))
    return true;
  if ((last == U_GCB_LV || last == U_GCB_V) && (kind == U_GCB_V || kind == U_GCB_T)) return true;
  if ((last == U_GCB_LVT || last == U_GCB_T) && kind == U_GCB_T) return true;
  if (kind == U_GCB_EXTEND || kind == U_GCB_ZWJ || kind == U_GCB_SPACING_MARK) return true;
  if (last == U_GCB_PREPEND) return true;
  if (state.joined &&
      u_hasBinaryProperty(static_cast<UChar32>(c), UCHAR_EXTENDED_PICTOGRAPHIC) != 0) {
    return true;
  }
  return last == U_GCB_REGIONAL_INDICATOR && kind == U_GCB_REGIONAL_INDICATOR &&
         state.flags % 2 == 1;
}

}  // namespace

size_t grapheme_bytes(std::string_view text, size_t at) {
  const auto is_plain = [&](size_t i) { return i >= text.size() || (text[i] & 0x80) == 0; };
  if (is_plain(at) && is_plain(at + 1) && text[at] != '\r') return 1;
  const Utf8Char first = decode_utf8(text, at);
  size_t end = at + first.bytes;
  if (!first.valid) return first.bytes;
  ClusterState state;
  take(state, first.value, break_class(first.value));
  while (end < text.size()) {
    const Utf8Char c = decode_utf8(text, end);
    const int kind = c.valid ? break_class(c.value) : static_cast<int>(U_GCB_CONTROL);
    if (!goes_on(state, c.value, kind)) break;
    take(state, c.value, kind);
    end += c.bytes;
  }
  return end - at;
}

}  // namespace tutti::data
