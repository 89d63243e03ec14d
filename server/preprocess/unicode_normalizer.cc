#include "server/preprocess/unicode_normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>

namespace odb {
namespace {

utf8proc_option_t OptionsOf(NormalizationForm form) {
  int options = UTF8PROC_STABLE;
  switch (form) {
    case NormalizationForm::kNone:
      break;
    case NormalizationForm::kNfc:
      options |= UTF8PROC_COMPOSE;
      break;
    case NormalizationForm::kNfd:
      options |= UTF8PROC_DECOMPOSE;
      break;
    case NormalizationForm::kNfkc:
      options |= UTF8PROC_COMPOSE | UTF8PROC_COMPAT;
      break;
    case NormalizationForm::kNfkd:
      options |= UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT;
      break;
  }
  return static_cast<utf8proc_option_t>(options);
}

// Characters below U+0300 are in NFC whatever stands around them, as far as these are below it
// too; their first bytes are below 0xcc. ASCII is in every form.
bool IsTriviallyNormal(NormalizationForm form, absl::string_view text) {
  const unsigned char limit = form == NormalizationForm::kNfc ? 0xcc : 0x80;
  return std::all_of(text.begin(), text.end(),
                     [limit](char c) { return static_cast<unsigned char>(c) < limit; });
}

}  // namespace

absl::string_view Normalize(NormalizationForm form, absl::string_view text, std::string* buffer) {
  if (form == NormalizationForm::kNone || IsTriviallyNormal(form, text)) return text;
  utf8proc_uint8_t* normal = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &normal, OptionsOf(form));
  if (size < 0) return text;
  buffer->assign(reinterpret_cast<const char*>(normal), static_cast<size_t>(size));
  std::free(normal);
  return *buffer;
}

}  // namespace odb
