#pragma once

#include <simdjson.h>

#include <optional>

#include "server/preprocess/conversation.h"
#include "server/preprocess/json_record.h"

namespace odb {

// Reads one record as a conversation: the same dialogue, in whichever format, is the same
// Conversation. README.md of this folder lists roles, shapes and what is refused.
//
// `out` is filled from anew; after a Rejection its content is undefined. `nested` parses JSON
// within strings (arguments, tools). Threads: as the parsers. Errors: the reasons a conversation
// can have.
std::optional<Rejection> ParseConversation(simdjson::dom::object record, ConversationFormat format,
                                           simdjson::dom::parser* nested, Conversation* out);

}  // namespace odb
