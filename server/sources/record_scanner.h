#pragma once

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"

namespace odb {

// A record found by a scan: what a source keeps for each of its records.
struct ScannedRecord {
  int64_t offset = 0;  // of its first byte in the file
  int32_t bytes = 0;   // saturated at INT32_MAX
  int32_t line = 0;    // on which it starts, from 1; saturated at INT32_MAX
};

// Splits JSON Lines into records: one per line that holds anything but blanks. The line end (\n,
// with \r before it) is no part of a record; U+2028 and \r alone are ordinary characters.
//
// Fed with the file's bytes in pieces of any size. Threads: thread-compatible. Errors: none, every
// byte sequence is some list of lines.
class LineScanner {
 public:
  // `first_offset`: where the first piece lies in the file (behind a byte order mark).
  LineScanner(int64_t first_offset, std::vector<ScannedRecord>* records)
      : position_(first_offset), line_start_(first_offset), records_(records) {}

  void Feed(absl::string_view piece);
  void Finish();

 private:
  void EndLine(int64_t end);

  int64_t position_;    // in the file, of the next byte
  int64_t line_start_;  // in the file
  int64_t line_ = 1;
  bool blank_ = true;  // the line so far holds only blanks
  char last_ = '\n';   // byte before position_
  std::vector<ScannedRecord>* const records_;
};

// Splits the elements of one JSON array into records, without parsing them: strings, escapes and
// nesting are followed, nothing else. An element that is broken within itself is still one record
// as long as its brackets and quotes balance; where they do not, everything up to the end of the
// file is one record.
//
// Threads, errors: as LineScanner.
class ArrayScanner {
 public:
  ArrayScanner(int64_t first_offset, std::vector<ScannedRecord>* records)
      : position_(first_offset), records_(records) {}

  void Feed(absl::string_view piece);
  void Finish();

  // After Finish: the closing bracket was there, and nothing but blanks behind it.
  bool closed() const { return state_ == State::kAfterArray; }
  // After Finish: the last record has a quote or a bracket that is never closed, so whatever
  // records follow in the file are part of it.
  bool ends_within_record() const { return ends_within_record_; }

 private:
  enum class State : uint8_t {
    kBeforeArray,
    kBeforeElement,  // after `[` or a comma
    kElement,
    kString,
    kEscape,  // after a backslash in a string
    kAfterArray,
    kTrailing,  // something follows the array: one more record, to the end of the file
  };

  void Step(char c);
  void BeginElement();
  void EndElement();

  int64_t position_;  // in the file, of the byte at hand
  int64_t line_ = 1;
  State state_ = State::kBeforeArray;
  int64_t depth_ = 0;  // brackets open within the element
  int64_t element_start_ = 0;
  int64_t element_line_ = 0;
  int64_t element_end_ = 0;  // behind its last byte that is not blank
  bool ends_within_record_ = false;
  std::vector<ScannedRecord>* const records_;
};

}  // namespace odb
