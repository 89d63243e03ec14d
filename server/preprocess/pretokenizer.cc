#include "server/preprocess/pretokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace odb {

const char kByteLevelPattern[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

// Classes in the meaning that Oniguruma and Rust give them.
std::string TranslatePattern(absl::string_view pattern) {
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char escaped = pattern[++i];
      if (escaped == 's') {
        out += "\\p{White_Space}";
      } else if (escaped == 'S') {
        out += "\\P{White_Space}";
      } else if (escaped == 'w') {
        out += in_class ? "\\p{L}\\p{M}\\p{N}\\p{Pc}" : "[\\p{L}\\p{M}\\p{N}\\p{Pc}]";
      } else {
        out += c;
        out += escaped;
      }
      continue;
    }
    if (c == '[') in_class = true;
    if (c == ']') in_class = false;
    out += c;
  }
  return out;
}

struct FreeMatchData {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct FreeMatchContext {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
struct FreeJitStack {
  void operator()(pcre2_jit_stack* stack) const { pcre2_jit_stack_free(stack); }
};

class MatchScratch final : public SplitPattern::Scratch {
 public:
  explicit MatchScratch(const pcre2_code* code)
      : data(pcre2_match_data_create_from_pattern(code, nullptr)),
        context(pcre2_match_context_create(nullptr)),
        stack(pcre2_jit_stack_create(32 << 10, 8 << 20, nullptr)) {
    pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
  }

  const std::unique_ptr<pcre2_match_data, FreeMatchData> data;
  const std::unique_ptr<pcre2_match_context, FreeMatchContext> context;
  const std::unique_ptr<pcre2_jit_stack, FreeJitStack> stack;
};

}  // namespace

struct SplitPattern::Code {
  explicit Code(pcre2_code* compiled) : code(compiled) {}
  ~Code() { pcre2_code_free(code); }
  pcre2_code* const code;
};

SplitPattern::SplitPattern(std::unique_ptr<Code> code, Gaps gaps)
    : code_(std::move(code)), gaps_(gaps) {}
SplitPattern::~SplitPattern() = default;

absl::StatusOr<std::unique_ptr<SplitPattern>> SplitPattern::Compile(absl::string_view pattern,
                                                                    Gaps gaps) {
  const std::string translated = TranslatePattern(pattern);
  int error = 0;
  PCRE2_SIZE error_offset = 0;
  pcre2_code* code = pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &error_offset, nullptr);
  if (code == nullptr) {
    PCRE2_UCHAR message[256];
    pcre2_get_error_message(error, message, sizeof(message));
    return absl::InvalidArgumentError(absl::StrCat("pattern ", translated, ": at ", error_offset,
                                                   ": ", reinterpret_cast<char*>(message)));
  }
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // without JIT it is slower, not different
  return std::unique_ptr<SplitPattern>(new SplitPattern(std::make_unique<Code>(code), gaps));
}

std::unique_ptr<SplitPattern::Scratch> SplitPattern::NewScratch() const {
  return std::make_unique<MatchScratch>(code_->code);
}

void SplitPattern::Split(absl::string_view text, Scratch* scratch,
                         const std::function<void(absl::string_view)>& piece) const {
  auto* const match = static_cast<MatchScratch*>(scratch);
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  size_t done = 0;  // everything before is handed out
  size_t at = 0;
  uint32_t flags = 0;
  bool failed = false;
  while (at < text.size()) {
    const int found = pcre2_match(code_->code, subject, text.size(), at, flags, match->data.get(),
                                  match->context.get());
    if (found < 0) {
      failed = found != PCRE2_ERROR_NOMATCH;
      break;
    }
    flags = PCRE2_NO_UTF_CHECK;  // checked by the first call
    const PCRE2_SIZE* span = pcre2_get_ovector_pointer(match->data.get());
    if (span[1] == span[0]) {  // an empty match cuts nothing; go on behind the next character
      at = span[1] + 1;
      while (at < text.size() && (text[at] & 0xc0) == 0x80) ++at;
      continue;
    }
    if (span[0] > done && gaps_ == Gaps::kKept) piece(text.substr(done, span[0] - done));
    piece(text.substr(span[0], span[1] - span[0]));
    done = at = span[1];
  }
  if (done < text.size() && (gaps_ == Gaps::kKept || failed)) piece(text.substr(done));
}

}  // namespace odb
