#pragma once

#include <memory>

#include "server/preprocess/tokenizer.h"

namespace odb {

// The embedded default: ids 0 to 255 are bytes, then <|pad|> (256), <|im_start|> (257) and
// <|im_end|> (258). Needs no file.
std::unique_ptr<Tokenizer> MakeByteTokenizer();

}  // namespace odb
