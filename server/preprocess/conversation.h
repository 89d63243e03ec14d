#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace odb {

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
