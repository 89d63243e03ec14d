#include "server/daemon/config_digest.h"

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "server/daemon/config_fields.h"

namespace odb {

ConfigDigests DigestConfig(const v1::Config& config, const ContentDigests& content) {
  ConfigDigests digests;
  v1::Config compared = config;
  for (v1::Stream& stream : *compared.mutable_streams()) {
    stream.clear_data();  // compared by content, by the trainers of that stream
    stream.clear_prefetch_steps();
    stream.clear_prefetch_bytes();
  }
  for (const FieldSpec& spec : ConfigFields()) {
    if (spec.shapes_plans) digests.emplace_back(spec.name, FieldToText(spec, compared));
  }
  digests.emplace_back("sources", absl::StrCat(absl::Hex(content.sources, absl::kZeroPad16)));
  digests.emplace_back("tokenizer", absl::StrCat(absl::Hex(content.tokenizer, absl::kZeroPad16)));
  digests.emplace_back("transform", absl::StrCat(absl::Hex(content.transform, absl::kZeroPad16)));
  return digests;
}

uint64_t CombinedDigest(const ConfigDigests& digests) {
  std::string text;
  for (const auto& [key, value] : digests) absl::StrAppend(&text, key, "=", value, "\n");
  return Hash64(text);
}

}  // namespace odb
