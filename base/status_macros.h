#pragma once

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Returns the status of `expr` from the enclosing function unless it is OK.
#define RETURN_IF_ERROR(expr)                  \
  do {                                         \
    ::absl::Status odb_status_ = (expr);       \
    if (!odb_status_.ok()) return odb_status_; \
  } while (false)

#define ODB_CONCAT_INNER_(a, b) a##b
#define ODB_CONCAT_(a, b) ODB_CONCAT_INNER_(a, b)

// ASSIGN_OR_RETURN(const Report report, Decode(bytes)): names the value, or returns the error.
#define ASSIGN_OR_RETURN(lhs, expr) \
  ODB_ASSIGN_OR_RETURN_IMPL_(ODB_CONCAT_(odb_status_or_, __LINE__), lhs, expr)
#define ODB_ASSIGN_OR_RETURN_IMPL_(name, lhs, expr) \
  auto name = (expr);                               \
  if (!name.ok()) return std::move(name).status();  \
  lhs = std::move(name).value()

// Ends the process, in release builds too, when a programmer's assumption does not hold.
#define INVARIANT(condition, message)                                                           \
  do {                                                                                          \
    if (!(condition)) {                                                                         \
      std::fprintf(stderr, "%s:%d: invariant violated: %s (%s)\n", __FILE__, __LINE__, message, \
                   #condition);                                                                 \
      std::abort();                                                                             \
    }                                                                                           \
  } while (false)
