#pragma once

#include <catch2/catch.hpp>
#include <sstream>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"

namespace odb {

// CHECK_THAT(Decode("short").status(), HasCode(absl::StatusCode::kInvalidArgument));
class HasCode final : public Catch::MatcherBase<absl::Status> {
 public:
  explicit HasCode(absl::StatusCode code) : code_(code) {}
  bool match(const absl::Status& status) const override { return status.code() == code_; }
  std::string describe() const override {
    return "has code " + std::string(absl::StatusCodeToString(code_));
  }

 private:
  absl::StatusCode code_;
};

// CHECK_THAT(status, HasMessage("token_budget")): the text contains the substring.
class HasMessage final : public Catch::MatcherBase<absl::Status> {
 public:
  explicit HasMessage(std::string text) : text_(std::move(text)) {}
  bool match(const absl::Status& status) const override {
    return absl::StrContains(status.message(), text_);
  }
  std::string describe() const override { return "has a message with \"" + text_ + "\""; }

 private:
  std::string text_;
};

}  // namespace odb

namespace Catch {
template <>
struct StringMaker<absl::Status> {
  static std::string convert(const absl::Status& status) { return status.ToString(); }
};
}  // namespace Catch
