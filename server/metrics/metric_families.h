#pragma once

#include <prometheus/metric_family.h>

#include <vector>

#include "proto/odb/v1/status.pb.h"

namespace odb {

// A snapshot of the status as Prometheus' metrics, so that both say the same. Pure.
//
// Names begin with odbd_, units are seconds and bytes. What ends in _total only rises while the
// daemon runs, for each set of labels: stream; job and stream; job, stream and rank. A job's series
// are there as long as it is in the status. docs/operations.md lists all of them.
std::vector<prometheus::MetricFamily> MetricFamilies(const v1::Status& status);

}  // namespace odb
