#pragma once

#include <stddef.h>
#include <stdint.h>

// The C functions of libodb_sentencepiece.so, the only thing here that is linked with
// SentencePiece.
//
// Debian's libsentencepiece.so exports a Protobuf of its own, of another version than gRPC's: in
// one process each would be served with the other's functions. So it is opened at run time, in a
// scope of its own (sentencepiece_library.h), and nothing but plain bytes crosses: what one side
// allocates it frees itself.
//
// Threads: encode may be called from any number of threads at once. Errors: as told.

#ifdef __cplusplus
extern "C" {
#endif

typedef struct OdbPieces OdbPieces;

// A model out of the bytes of its file; NULL, and why in `error` (cut to error_size, with its end),
// if SentencePiece refuses them.
OdbPieces* odb_pieces_open(const char* model, size_t model_size, char* error, size_t error_size);
void odb_pieces_close(OdbPieces* pieces);

// The id of the piece that fills up or stands for what is unknown; -1 if the model has none.
int32_t odb_pieces_pad_id(const OdbPieces* pieces);
int32_t odb_pieces_unk_id(const OdbPieces* pieces);

// Gives the ids of the text to `sink`, once. Returns 0, or 1 if SentencePiece fails.
int odb_pieces_encode(const OdbPieces* pieces, const char* text, size_t text_size,
                      void (*sink)(void* context, const int32_t* ids, size_t count), void* context);

#ifdef __cplusplus
}
#endif
