#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/preprocess/tokenizer.h"

namespace odb {

// Byte-level BPE from a Hugging Face tokenizer.json: the ids that the "tokenizers" library gives,
// without what its post-processor adds. The pad token comes from tokenizer_config.json beside the
// file (pad_token, else eos_token), else from the added tokens (<|endoftext|>, <pad>, ...).
//
// Supported: model BPE over the byte alphabet; normalizers NFC, NFD, NFKC, NFKD; pre-tokenizers
// ByteLevel and Split with a pattern; any sequence of them; added tokens. Whatever else a file asks
// for is refused by name, never left out silently.
//
// Errors: NotFound, PermissionDenied, InvalidArgument (broken file: what and where), Unimplemented
// (a feature that is not supported: which).
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadBpeTokenizer(const std::string& path);

}  // namespace odb
