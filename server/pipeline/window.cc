#include "server/pipeline/window.h"

#include <utility>

#include "base/status_macros.h"

namespace odb {

SampleShape WindowSample::shape() const {
  SampleShape shape;
  shape.length = sample.length();
  shape.loss_tokens = sample.loss_tokens;
  shape.vision_load = sample.vision_load;
  shape.waited_rounds = waited_rounds;
  shape.id_hash = id_hash;
  shape.alone = sample.over_length;
  return shape;
}

void Window::Add(WindowSample sample) {
  INVARIANT(!full(), "a sample for a full window");
  samples_.push_back(std::move(sample));
}

std::vector<SampleShape> Window::Shapes() const {
  std::vector<SampleShape> shapes;
  shapes.reserve(samples_.size());
  for (const WindowSample& sample : samples_) shapes.push_back(sample.shape());
  return shapes;
}

std::vector<std::vector<WindowSample>> Window::Take(absl::Span<const PlannedGroup> groups,
                                                    absl::Span<const int32_t> leftovers) {
  std::vector<bool> taken(samples_.size(), false);
  const auto take = [&](int32_t position) {
    const auto index = static_cast<size_t>(position);
    INVARIANT(index < samples_.size() && !taken[index], "a plan names a position twice, or none");
    taken[index] = true;
    return std::move(samples_[index]);
  };
  std::vector<std::vector<WindowSample>> steps(groups.size());
  for (size_t step = 0; step < groups.size(); ++step) {
    for (const SampleRef ref : groups[step].samples) steps[step].push_back(take(ref.position));
  }
  std::vector<WindowSample> kept;
  kept.reserve(static_cast<size_t>(capacity_));
  for (const int32_t position : leftovers) {
    kept.push_back(take(position));
    ++kept.back().waited_rounds;
  }
  for (const bool is_taken : taken) INVARIANT(is_taken, "a plan lost a sample");
  samples_ = std::move(kept);
  return steps;
}

}  // namespace odb
