#pragma once

#include <cstddef>
#include <string>

#include "proto/odb/v1/status.pb.h"

namespace odb {

// What odbctl prints, from the daemon's messages. Pure; every line ends with a newline.

struct Screen {
  size_t columns = 80;
  size_t lines = 23;  // of 24: the last one is the shell's
};

// The state of a daemon, never larger than the screen: what limits it, the ledger, the jobs and as
// many of their ranks as fit (the others are counted).
std::string RenderStatus(const v1::Status& status, const Screen& screen = {});

// Which samples an epoch gave out, and fill and real tokens beside those of fixed batches of the
// same data: "epoch 0: 999 of 999, each once".
std::string RenderCoverage(const v1::Coverage& coverage);

// Whether a finished epoch missed or repeated a sample.
bool CoverageIsBroken(const v1::Coverage& coverage);

// What was quarantined: counts by reason, then one line per sample ("data.jsonl:417 (byte 88,112)
// invalid_utf8: ..."), not cut.
std::string RenderQuarantine(const v1::ListQuarantineReply& reply);

}  // namespace odb
