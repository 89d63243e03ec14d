#include "server/preprocess/conversation_parser.h"

#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/preprocess/tool_parser.h"

namespace odb {
namespace {

namespace dom = simdjson::dom;
using Reason = QuarantineReason;

// What a role's name says of the turn.
enum class Speaker : uint8_t { kSystem, kUser, kAssistant, kTool, kToolCall };

struct SpeakerName {
  absl::string_view name;
  Speaker speaker;
};

constexpr SpeakerName kSpeakers[] = {
    {"user", Speaker::kUser},
    {"human", Speaker::kUser},
    {"assistant", Speaker::kAssistant},
    {"gpt", Speaker::kAssistant},
    {"model", Speaker::kAssistant},
    {"system", Speaker::kSystem},
    {"developer", Speaker::kSystem},
    {"tool", Speaker::kTool},
    {"observation", Speaker::kTool},
    {"function", Speaker::kTool},
    {"function_response", Speaker::kTool},
    {"tool_response", Speaker::kTool},
    {"function_call", Speaker::kToolCall},
    {"tool_call", Speaker::kToolCall},
};

constexpr const char* kMediaKeys[] = {"image", "images", "video", "videos", "audio", "audios"};

absl::string_view View(std::string_view text) {
  return absl::string_view(text.data(), text.size());
}

std::optional<Speaker> FindSpeaker(absl::string_view name) {
  for (const SpeakerName& entry : kSpeakers) {
    if (entry.name == name) return entry.speaker;
  }
  return std::nullopt;
}

// A member that is there and not null. Of a key that comes twice, the first.
std::optional<dom::element> Member(dom::object object, const char* key) {
  dom::element member;
  if (object[key].get(member) != simdjson::SUCCESS || member.is_null()) return std::nullopt;
  return member;
}

// The first of two names that is there.
std::optional<dom::element> Member(dom::object object, const char* key, const char* alias) {
  const std::optional<dom::element> member = Member(object, key);
  return member ? member : Member(object, alias);
}

bool HoldsSomething(dom::element value) {
  std::string_view text;
  if (value.get(text) == simdjson::SUCCESS) return !text.empty();
  dom::array array;
  if (value.get(array) == simdjson::SUCCESS) return array.size() > 0;
  return true;
}

// Reads the turns of one conversation; knows which turn it is at, for messages.
class TurnReader {
 public:
  TurnReader(dom::parser* nested, Conversation* out) : nested_(nested), out_(out) {}

  std::optional<Rejection> ReadTurns(dom::element turns, const char* key) {
    dom::array array;
    if (turns.get(array) != simdjson::SUCCESS) {
      return Rejection{Reason::kBadContent, absl::StrCat(key, " is no array")};
    }
    if (array.size() == 0) {
      return Rejection{Reason::kEmptyConversation, absl::StrCat(key, " is empty")};
    }
    for (const dom::element entry : array) {
      ++turn_;
      dom::object turn;
      if (entry.get(turn) != simdjson::SUCCESS) return Refuse(Reason::kBadContent, "is no object");
      if (auto rejection = ReadTurn(turn)) return rejection;
    }
    return std::nullopt;
  }

 private:
  Rejection Refuse(Reason reason, absl::string_view what) const {
    return Rejection{reason, absl::StrCat("turn ", turn_, " ", what)};
  }

  std::optional<Rejection> ReadTurn(dom::object turn) {
    std::string_view role;
    const auto role_member = Member(turn, "role", "from");
    if (!role_member || role_member->get(role) != simdjson::SUCCESS) {
      return Refuse(Reason::kUnknownRole, "has no role");
    }
    const std::optional<Speaker> speaker = FindSpeaker(View(role));
    if (!speaker) {
      return Refuse(
          Reason::kUnknownRole,
          absl::StrCat("has role ", Quoted(View(role)),
                       "; known are user, assistant, system, tool and their other names"));
    }
    switch (*speaker) {
      case Speaker::kSystem:
        return ReadContentTurn(turn, Role::kSystem);
      case Speaker::kUser:
        return ReadContentTurn(turn, Role::kUser);
      case Speaker::kTool:
        return ReadContentTurn(turn, Role::kTool);
      case Speaker::kAssistant:
        return ReadAssistantTurn(turn);
      case Speaker::kToolCall:
        return ReadToolCallTurn(turn);
    }
    return std::nullopt;
  }

  std::optional<Rejection> ReadContentTurn(dom::object turn, Role role) {
    Turn& out = out_->turns.emplace_back();
    out.role = role;
    const auto content = Member(turn, "content", "value");
    if (!content) return Refuse(Reason::kBadContent, "has no content");
    if (auto rejection = ReadContent(*content, &out)) return rejection;
    const auto calls = Member(turn, "tool_calls");
    if ((calls && HoldsSomething(*calls)) || !out.tool_calls.empty() || !out.reasoning.empty()) {
      return Refuse(Reason::kBadTools, "calls tools or reasons, and is not the assistant's");
    }
    return std::nullopt;
  }

  std::optional<Rejection> ReadAssistantTurn(dom::object turn) {
    Turn& out = out_->turns.emplace_back();
    out.role = Role::kAssistant;
    if (auto rejection = ReadWeight(turn, &out)) return rejection;
    const auto reasoning = Member(turn, "reasoning_content", "reasoning");
    std::string_view text;
    if (reasoning) {
      if (reasoning->get(text) != simdjson::SUCCESS) {
        return Refuse(Reason::kBadContent, "has reasoning that is no string");
      }
      out.reasoning = std::string(text);
    }
    const auto content = Member(turn, "content", "value");
    if (content) {
      if (auto rejection = ReadContent(*content, &out)) return rejection;
    }
    if (const auto calls = Member(turn, "tool_calls", "function_call")) {
      if (auto rejection = ParseToolCalls(*calls, nested_, &out.tool_calls)) {
        return Refuse(rejection->reason, rejection->detail);
      }
    }
    if (!content && out.tool_calls.empty() && out.reasoning.empty()) {
      return Refuse(Reason::kBadContent, "has no content and calls no tool");
    }
    return std::nullopt;
  }

  // ShareGPT writes calls as turns of their own. They belong to the assistant's turn before them,
  // if it comes right before, as in the other formats.
  std::optional<Rejection> ReadToolCallTurn(dom::object turn) {
    const bool continues = !out_->turns.empty() && out_->turns.back().role == Role::kAssistant;
    if (!continues) out_->turns.emplace_back().role = Role::kAssistant;
    Turn& out = out_->turns.back();
    const bool in_loss = out.in_loss;
    if (auto rejection = ReadWeight(turn, &out)) return rejection;
    if (continues && out.in_loss != in_loss) {
      return Refuse(Reason::kBadContent, "has another weight than the turn it continues");
    }
    const auto calls = Member(turn, "content", "value");
    const size_t num_before = out.tool_calls.size();
    if (calls) {
      if (auto rejection = ParseToolCalls(*calls, nested_, &out.tool_calls)) {
        return Refuse(rejection->reason, rejection->detail);
      }
    }
    if (out.tool_calls.size() == num_before) return Refuse(Reason::kBadTools, "holds no call");
    return std::nullopt;
  }

  // Weights select turns; labels know no half of a token.
  std::optional<Rejection> ReadWeight(dom::object turn, Turn* out) const {
    const auto weight = Member(turn, "weight", "loss_weight");
    if (!weight) return std::nullopt;
    double value = 0;
    if (weight->get(value) != simdjson::SUCCESS || (value != 0 && value != 1)) {
      return Refuse(Reason::kBadContent, "has a weight other than 0 and 1");
    }
    out->in_loss = value == 1;
    return std::nullopt;
  }

  std::optional<Rejection> ReadContent(dom::element content, Turn* out) {
    std::string_view text;
    if (content.get(text) == simdjson::SUCCESS) {
      out->content.append(text.data(), text.size());
      return std::nullopt;
    }
    dom::array parts;
    if (content.get(parts) != simdjson::SUCCESS) {
      return Refuse(Reason::kBadContent, "has content that is neither a string nor parts");
    }
    for (const dom::element part : parts) {
      if (auto rejection = ReadPart(part, out)) return rejection;
    }
    return std::nullopt;
  }

  std::optional<Rejection> ReadPart(dom::element part, Turn* out) {
    std::string_view text;
    if (part.get(text) == simdjson::SUCCESS) {
      out->content.append(text.data(), text.size());
      return std::nullopt;
    }
    dom::object object;
    std::string_view type;
    if (part.get(object) != simdjson::SUCCESS || object["type"].get(type) != simdjson::SUCCESS) {
      return Refuse(Reason::kBadContent, "has a content part without a type");
    }
    if (type == "tool_call") return ReadToolCallPart(object, out);
    const bool is_text = type == "text" || type == "output_text" || type == "input_text";
    const bool is_reasoning = type == "reasoning" || type == "thinking";
    if (!is_text && !is_reasoning) return RefusePart(View(type));
    auto value = Member(object, "text", "value");
    if (!value && is_reasoning) value = Member(object, "thinking", "reasoning");
    if (!value || value->get(text) != simdjson::SUCCESS) {
      return Refuse(Reason::kBadContent, absl::StrCat("has a ", View(type), " part without text"));
    }
    (is_text ? out->content : out->reasoning).append(text.data(), text.size());
    return std::nullopt;
  }

  Rejection RefusePart(absl::string_view type) const {
    const bool is_media = absl::StrContains(type, "image") || absl::StrContains(type, "video") ||
                          absl::StrContains(type, "audio");
    return Refuse(is_media ? Reason::kUnsupportedMedia : Reason::kBadContent,
                  absl::StrCat("has a content part of type ", Quoted(type)));
  }

  std::optional<Rejection> ReadToolCallPart(dom::object part, Turn* out) {
    const auto value = Member(part, "value", "tool_call");
    if (!value) return Refuse(Reason::kBadTools, "has a tool_call part without a value");
    if (auto rejection = ParseToolCalls(*value, nested_, &out->tool_calls)) {
      return Refuse(rejection->reason, rejection->detail);
    }
    return std::nullopt;
  }

  dom::parser* const nested_;
  Conversation* const out_;
  int turn_ = 0;  // from 1
};

void AddTurn(Role role, std::string content, Conversation* out) {
  Turn& turn = out->turns.emplace_back();
  turn.role = role;
  turn.content = std::move(content);
}

// A string member; nothing if it is not there. False if it is something else.
bool ReadString(dom::object record, const char* key, std::string* out) {
  const auto member = Member(record, key);
  if (!member) return true;
  std::string_view text;
  if (member->get(text) != simdjson::SUCCESS) return false;
  *out = std::string(text);
  return true;
}

struct AlpacaKeys {
  const char* prompt;
  const char* answer;
  const char* other_answer;
};

// The first pair whose prompt is there counts.
constexpr AlpacaKeys kAlpacaKeys[] = {{"instruction", "output", "response"},
                                      {"question", "answer", "response"},
                                      {"query", "response", "answer"},
                                      {"prompt", "response", "completion"}};

const AlpacaKeys* FindAlpacaKeys(dom::object record) {
  for (const AlpacaKeys& keys : kAlpacaKeys) {
    if (Member(record, keys.prompt) && Member(record, keys.answer, keys.other_answer)) {
      return &keys;
    }
  }
  // A missing answer is reported as such for the format's own keys only.
  return Member(record, "instruction") ? &kAlpacaKeys[0] : nullptr;
}

// history: [[prompt, answer], ...], the earlier turns.
std::optional<Rejection> ReadHistory(dom::element history, Conversation* out) {
  const Rejection bad{Reason::kBadContent, "history is no array of [prompt, answer]"};
  dom::array pairs;
  if (history.get(pairs) != simdjson::SUCCESS) return bad;
  for (const dom::element entry : pairs) {
    dom::array pair;
    std::string_view prompt, answer;
    if (entry.get(pair) != simdjson::SUCCESS || pair.size() != 2 ||
        pair.at(0).get(prompt) != simdjson::SUCCESS ||
        pair.at(1).get(answer) != simdjson::SUCCESS) {
      return bad;
    }
    AddTurn(Role::kUser, std::string(prompt), out);
    AddTurn(Role::kAssistant, std::string(answer), out);
  }
  return std::nullopt;
}

std::optional<Rejection> ReadAlpaca(dom::object record, const AlpacaKeys& keys, Conversation* out) {
  if (const auto history = Member(record, "history")) {
    if (auto rejection = ReadHistory(*history, out)) return rejection;
  }
  std::string prompt, input, answer;
  if (!ReadString(record, keys.prompt, &prompt)) {
    return Rejection{Reason::kBadContent, absl::StrCat(keys.prompt, " is no string")};
  }
  if (!ReadString(record, "input", &input)) {
    return Rejection{Reason::kBadContent, "input is no string"};
  }
  if (!prompt.empty() && !input.empty()) prompt += '\n';
  prompt += input;
  AddTurn(Role::kUser, std::move(prompt), out);

  const char* const answer_key = Member(record, keys.answer) ? keys.answer : keys.other_answer;
  if (!Member(record, answer_key)) {
    return Rejection{Reason::kNoAssistant, absl::StrCat("there is no ", keys.answer)};
  }
  if (!ReadString(record, answer_key, &answer)) {
    return Rejection{Reason::kBadContent, absl::StrCat(answer_key, " is no string")};
  }
  AddTurn(Role::kAssistant, std::move(answer), out);
  return std::nullopt;
}

Rejection UnknownFormat(dom::object record) {
  if (Member(record, "input_ids")) {
    return Rejection{Reason::kUnknownFormat, "it was tokenized before; set format to tokenized"};
  }
  return Rejection{Reason::kUnknownFormat, DescribeKeys(record)};
}

std::optional<Rejection> ReadTurnsOfFormat(dom::object record, ConversationFormat format,
                                           dom::parser* nested, Conversation* out) {
  const auto reads = [format](ConversationFormat wanted) {
    return format == ConversationFormat::kAuto || format == wanted;
  };
  if (reads(ConversationFormat::kMessages)) {
    if (const auto turns = Member(record, "messages")) {
      return TurnReader(nested, out).ReadTurns(*turns, "messages");
    }
  }
  if (reads(ConversationFormat::kShareGpt)) {
    if (const auto turns = Member(record, "conversations", "conversation")) {
      return TurnReader(nested, out).ReadTurns(*turns, "conversations");
    }
  }
  if (reads(ConversationFormat::kAlpaca)) {
    if (const AlpacaKeys* keys = FindAlpacaKeys(record)) return ReadAlpaca(record, *keys, out);
  }
  return UnknownFormat(record);
}

}  // namespace

std::optional<Rejection> ParseConversation(dom::object record, ConversationFormat format,
                                           dom::parser* nested, Conversation* out) {
  out->Clear();
  if (Member(record, "chosen") && Member(record, "rejected")) {
    return Rejection{Reason::kUnknownFormat,
                     "it is preference data (chosen, rejected), which has no one answer"};
  }
  std::string system;
  if (!ReadString(record, "system", &system)) {
    return Rejection{Reason::kBadContent, "system is no string"};
  }
  if (!system.empty()) AddTurn(Role::kSystem, std::move(system), out);
  if (auto rejection = ReadTurnsOfFormat(record, format, nested, out)) return rejection;
  for (const char* key : kMediaKeys) {
    const auto media = Member(record, key);
    if (media && HoldsSomething(*media)) {
      return Rejection{Reason::kUnsupportedMedia, absl::StrCat("the record has ", key)};
    }
  }
  if (const auto tools = Member(record, "tools", "functions")) {
    if (auto rejection = ParseTools(*tools, nested, &out->tools)) return rejection;
  }
  for (const Turn& turn : out->turns) {
    if (turn.role == Role::kAssistant) return std::nullopt;
  }
  return Rejection{Reason::kNoAssistant,
                   absl::StrCat("none of the ", out->turns.size(), " turns is the assistant's")};
}

}  // namespace odb
