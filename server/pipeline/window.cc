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

std::vector<WindowSample> Window::TakeAll() { return std::exchange(samples_, {}); }

void Window::PutBack(std::vector<WindowSample> leftovers) {
  INVARIANT(empty(), "leftovers come before new samples");
  samples_ = std::move(leftovers);
  for (WindowSample& sample : samples_) ++sample.waited_rounds;
}

}  // namespace odb
