#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace odb {

// How a conversation is written down. kAuto looks at each record's keys, in the order below.
enum class ConversationFormat : uint8_t {
  kAuto = 0,
  kMessages = 1,  // messages: [{role, content, tool_calls}]; tools
  kShareGpt = 2,  // conversations: [{from, value}]; system, tools
  kAlpaca = 3,    // instruction, input, output, system, history; or question, answer; or prompt,
                  // response
};

// Who speaks in a turn. The three formats name them differently; see conversation_parser.h.
enum class Role : uint8_t {
  kSystem = 0,
  kUser = 1,
  kAssistant = 2,
  kTool = 3,  // the result of a call
};

struct ToolCall {
  std::string name;
  std::string arguments;  // JSON, in canonical form (json_text.h)
};

struct Turn {
  Role role = Role::kUser;
  std::string content;
  std::string reasoning;             // assistant only; what it thought before it spoke
  std::vector<ToolCall> tool_calls;  // assistant only
  bool in_loss = true;               // assistant only; false where the data says weight 0
};

// One dialogue, whatever format it was written in.
struct Conversation {
  std::vector<Turn> turns;
  std::vector<std::string> tools;  // one JSON object each, in canonical form

  void Clear() {
    turns.clear();
    tools.clear();
  }
};

}  // namespace odb
