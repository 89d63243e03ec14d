// No header of Abseil may be seen here: SentencePiece's declares an absl::string_view of its own.
#include "server/preprocess/sentencepiece_shim.h"

#include <sentencepiece_processor.h>

#include <cstdio>
#include <memory>
#include <string_view>
#include <type_traits>
#include <vector>

static_assert(std::is_same_v<int, int32_t>, "SentencePiece's ids are int");

struct OdbPieces {
  sentencepiece::SentencePieceProcessor processor;
};

OdbPieces* odb_pieces_open(const char* model, size_t model_size, char* error, size_t error_size) {
  auto pieces = std::make_unique<OdbPieces>();
  const auto status = pieces->processor.LoadFromSerializedProto({model, model_size});
  if (status.ok()) return pieces.release();
  std::snprintf(error, error_size, "%s", status.error_message());
  return nullptr;
}

void odb_pieces_close(OdbPieces* pieces) { delete pieces; }

int32_t odb_pieces_pad_id(const OdbPieces* pieces) { return pieces->processor.pad_id(); }

int32_t odb_pieces_unk_id(const OdbPieces* pieces) { return pieces->processor.unk_id(); }

int odb_pieces_encode(const OdbPieces* pieces, const char* text, size_t text_size,
                      void (*sink)(void* context, const int32_t* ids, size_t count),
                      void* context) {
  std::vector<int> ids;
  if (!pieces->processor.Encode(std::string_view(text, text_size), &ids).ok()) return 1;
  sink(context, ids.data(), ids.size());
  return 0;
}
