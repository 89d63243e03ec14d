#include "server/sources/record_scanner.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace odb {
namespace {

bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

int32_t Saturated(int64_t value) {
  return static_cast<int32_t>(std::min<int64_t>(value, std::numeric_limits<int32_t>::max()));
}

ScannedRecord MakeRecord(int64_t begin, int64_t end, int64_t line) {
  return ScannedRecord{begin, Saturated(end - begin), Saturated(line)};
}

}  // namespace

void LineScanner::Feed(absl::string_view piece) {
  const char* at = piece.data();
  const char* const end = at + piece.size();
  while (at < end) {
    const void* found = std::memchr(at, '\n', static_cast<size_t>(end - at));
    const char* const stop = found != nullptr ? static_cast<const char*>(found) : end;
    if (blank_) blank_ = std::all_of(at, stop, IsBlank);
    if (stop > at) last_ = stop[-1];
    position_ += stop - at;
    if (found != nullptr) {
      EndLine(position_);
      ++position_;
      line_start_ = position_;
      ++line_;
    }
    at = stop + 1;
  }
}

void LineScanner::EndLine(int64_t end) {
  if (!blank_) {
    // A line that is not blank holds at least one byte besides the \r.
    const int64_t record_end = last_ == '\r' ? end - 1 : end;
    records_->push_back(MakeRecord(line_start_, record_end, line_));
  }
  blank_ = true;
}

void LineScanner::Finish() { EndLine(position_); }

void ArrayScanner::Feed(absl::string_view piece) {
  const char* at = piece.data();
  const char* const end = at + piece.size();
  while (at < end) {
    if (state_ == State::kString) {  // the bulk of most files: skip to what may end the string
      const char* stop =
          std::find_if(at, end, [](char c) { return c == '"' || c == '\\' || c == '\n'; });
      position_ += stop - at;
      at = stop;
      if (at == end) break;
    }
    Step(*at);
    if (*at == '\n') ++line_;
    ++at;
    ++position_;
  }
}

void ArrayScanner::Step(char c) {
  switch (state_) {
    case State::kBeforeArray:
      if (c == '[') state_ = State::kBeforeElement;
      return;
    case State::kBeforeElement:
      if (IsBlank(c)) return;
      if (c == ']' && depth_ == 0) {
        state_ = State::kAfterArray;
        return;
      }
      BeginElement();
      if (c == ',') {  // two commas in a row: an empty record, which preprocessing will refuse
        EndElement();
        state_ = State::kBeforeElement;
        return;
      }
      state_ = State::kElement;
      [[fallthrough]];
    case State::kElement:
      if (IsBlank(c)) return;
      if (depth_ == 0 && (c == ',' || c == ']')) {
        EndElement();
        state_ = c == ',' ? State::kBeforeElement : State::kAfterArray;
        return;
      }
      element_end_ = position_ + 1;
      if (c == '"') state_ = State::kString;
      if (c == '{' || c == '[') ++depth_;
      if (c == '}' || c == ']') --depth_;
      return;
    case State::kString:
      element_end_ = position_ + 1;
      if (c == '"') state_ = State::kElement;
      if (c == '\\') state_ = State::kEscape;
      return;
    case State::kEscape:
      element_end_ = position_ + 1;
      state_ = State::kString;
      return;
    case State::kAfterArray:
      if (IsBlank(c)) return;
      BeginElement();
      state_ = State::kTrailing;
      [[fallthrough]];
    case State::kTrailing:
      if (!IsBlank(c)) element_end_ = position_ + 1;
      return;
  }
}

void ArrayScanner::BeginElement() {
  element_start_ = position_;
  element_end_ = position_;
  element_line_ = line_;
}

void ArrayScanner::EndElement() {
  records_->push_back(MakeRecord(element_start_, element_end_, element_line_));
  depth_ = 0;
}

void ArrayScanner::Finish() {
  const bool within = state_ == State::kElement || state_ == State::kString ||
                      state_ == State::kEscape || state_ == State::kTrailing;
  const bool within_string = state_ == State::kString || state_ == State::kEscape;
  ends_within_record_ = within_string || (state_ == State::kElement && depth_ > 0);
  // Blanks at the end of a cut string belong to it.
  if (within_string) element_end_ = position_;
  if (within) EndElement();
}

}  // namespace odb
