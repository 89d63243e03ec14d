#include "server/preprocess/chatml.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/preprocess/sample.h"

namespace odb {
namespace {

constexpr char kToolsBefore[] =
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>";
constexpr char kToolsAfter[] =
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments "
    "within ";

// Collects segments: text goes to the last one where nothing sets it apart.
class SegmentWriter {
 public:
  explicit SegmentWriter(std::vector<ChatSegment>* segments) : segments_(segments) {}

  void set_in_loss(bool in_loss) { in_loss_ = in_loss; }

  void Marker(absl::string_view token) {
    segments_->push_back({std::string(token), true, in_loss_, MarkupTokens::kNone});
  }

  void Text(absl::string_view text, MarkupTokens markup = MarkupTokens::kNone) {
    if (text.empty()) return;
    const bool joins = !segments_->empty() && !segments_->back().is_marker &&
                       segments_->back().in_loss == in_loss_ && segments_->back().markup == markup;
    if (joins) {
      segments_->back().text.append(text.data(), text.size());
    } else {
      segments_->push_back({std::string(text), false, in_loss_, markup});
    }
  }

 private:
  std::vector<ChatSegment>* const segments_;
  bool in_loss_ = false;
};

absl::string_view StripLineBreaks(absl::string_view text) {
  while (!text.empty() && text.front() == '\n') text.remove_prefix(1);
  while (!text.empty() && text.back() == '\n') text.remove_suffix(1);
  return text;
}

absl::string_view StripLeadingLineBreaks(absl::string_view text) {
  while (!text.empty() && text.front() == '\n') text.remove_prefix(1);
  return text;
}

void WriteSystem(absl::string_view system, const std::vector<std::string>& tools,
                 SegmentWriter* out) {
  out->Marker("<|im_start|>");
  out->Text("system\n");
  out->Text(system);
  if (!tools.empty()) {
    if (!system.empty()) out->Text("\n\n");
    out->Text(kToolsBefore);
    for (const std::string& tool : tools) {
      out->Text("\n");
      out->Text(tool);
    }
    out->Text(kToolsAfter);
    out->Marker("<tool_call>");
    out->Marker("</tool_call>");
    out->Text(" XML tags:\n");
    out->Marker("<tool_call>");
    out->Text("\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n");
    out->Marker("</tool_call>");
  }
  out->Marker("<|im_end|>");
  out->Text("\n");
}

void WriteAssistant(const Turn& turn, SegmentWriter* out) {
  out->Marker("<|im_start|>");
  out->Text("assistant\n");
  out->set_in_loss(turn.in_loss);
  absl::string_view content = turn.content;
  if (!turn.reasoning.empty()) {
    out->Marker("<think>");
    out->Text(absl::StrCat("\n", StripLineBreaks(turn.reasoning), "\n"));
    out->Marker("</think>");
    out->Text("\n\n");
    content = StripLeadingLineBreaks(content);
  }
  // What the data gives the assistant to say may hold <think> or <tool_call>; <|im_end|> and the
  // like stay text here too.
  out->Text(content, MarkupTokens::kAdded);
  bool separate = !content.empty();
  for (const ToolCall& call : turn.tool_calls) {
    if (separate) out->Text("\n");
    separate = true;
    out->Marker("<tool_call>");
    out->Text(
        absl::StrCat("\n{\"name\": \"", call.name, "\", \"arguments\": ", call.arguments, "}\n"));
    out->Marker("</tool_call>");
  }
  out->Marker("<|im_end|>");
  out->set_in_loss(false);
  out->Text("\n");
}

// Results that follow each other share one turn of the user's.
void WriteToolResult(const Turn& turn, bool first, bool last, SegmentWriter* out) {
  if (first) {
    out->Marker("<|im_start|>");
    out->Text("user");
  }
  out->Text("\n");
  out->Marker("<tool_response>");
  out->Text(absl::StrCat("\n", turn.content, "\n"));
  out->Marker("</tool_response>");
  if (last) {
    out->Marker("<|im_end|>");
    out->Text("\n");
  }
}

}  // namespace

std::vector<ChatSegment> RenderChatml(const Conversation& conversation,
                                      const std::string& default_system) {
  std::vector<ChatSegment> segments;
  SegmentWriter out(&segments);
  const std::vector<Turn>& turns = conversation.turns;
  size_t next = 0;
  const bool has_system = !turns.empty() && turns.front().role == Role::kSystem;
  const std::string& system = has_system ? turns.front().content : default_system;
  if (has_system) next = 1;
  if (has_system || !system.empty() || !conversation.tools.empty()) {
    WriteSystem(system, conversation.tools, &out);
  }
  const auto is_tool = [&turns](size_t i) {
    return i < turns.size() && turns[i].role == Role::kTool;
  };
  for (size_t i = next; i < turns.size(); ++i) {
    switch (turns[i].role) {
      case Role::kSystem:
        WriteSystem(turns[i].content, {}, &out);
        break;
      case Role::kUser:
        out.Marker("<|im_start|>");
        out.Text("user\n");
        out.Text(turns[i].content);
        out.Marker("<|im_end|>");
        out.Text("\n");
        break;
      case Role::kAssistant:
        WriteAssistant(turns[i], &out);
        break;
      case Role::kTool:
        WriteToolResult(turns[i], i == next || !is_tool(i - 1), !is_tool(i + 1), &out);
        break;
    }
  }
  return segments;
}

void EncodeChat(const std::vector<ChatSegment>& segments, const Tokenizer& tokenizer,
                std::vector<int32_t>* ids, std::vector<int32_t>* labels) {
  std::string pending;  // text that is encoded in one go
  bool in_loss = false;
  MarkupTokens markup = MarkupTokens::kNone;
  const auto label = [&] {
    if (in_loss) {
      labels->insert(labels->end(), ids->begin() + static_cast<int64_t>(labels->size()),
                     ids->end());
    } else {
      labels->resize(ids->size(), kIgnoredLabel);
    }
  };
  const auto flush = [&] {
    if (!pending.empty()) tokenizer.Encode(pending, markup, ids);
    pending.clear();
    label();
  };
  for (const ChatSegment& segment : segments) {
    const auto marker =
        segment.is_marker ? tokenizer.MarkupId(segment.text) : std::optional<int32_t>();
    if (marker) {
      flush();
      ids->push_back(*marker);
      in_loss = segment.in_loss;
      label();
      continue;
    }
    // A marker without a token is text like that around it.
    const bool sets_apart =
        segment.in_loss != in_loss || (!segment.is_marker && segment.markup != markup);
    if (sets_apart) flush();
    if (pending.empty() || !segment.is_marker) markup = segment.markup;
    in_loss = segment.in_loss;
    pending += segment.text;
  }
  flush();
}

}  // namespace odb
