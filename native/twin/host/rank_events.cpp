#include "twin/host/rank_events.hpp"

namespace genie::twin {

void RankEvents::fold(Fold& fold) {
  static_assert(has_size<RankEvents>(80));
  static_assert(has_size<Event>(32));
  static_assert(has_size<Delayed>(96));
  std::sort(heap_.begin(), heap_.end(), [](const Event& a, const Event& b) { return b < a; });
  for (Event& event : heap_) {
    if (event.kind == Kind::kPlayed || event.kind == Kind::kWake ||
        (event.kind == Kind::kSleep && Walker::is_of_node(event.order))) {
      fold.horizon(event.time);
      continue;
    }
    fold.exact(event.kind);
    if (event.kind == Kind::kSleep || event.kind == Kind::kCompletion || event.kind == Kind::kPost)
      fold.pending(event.time);
    fold.moment(event.time);
    if (event.kind == Kind::kSleep) {
      fold.handle(event.order);
    } else if (event.kind == Kind::kCompletion) {
      Completion& completion = delayed_[event.place].completion;
      fold.exact(completion.type, completion.peer, completion.tag, completion.size_bytes);
      fold.exact(completion.retransmits);
      if (completion.type == Completion::Type::kSent) fold.handle(completion.handle);
      fold.latest(completion.first);
      fold.latest(completion.time);
    } else if (event.kind == Kind::kPost) {
      Operation& operation = delayed_[event.place].operation;
      fold.exact(operation.type, operation.peer, operation.tag, operation.size_bytes);
      fold.handle(operation.handle);
    } else {
      fold.exact(event.place);
    }
  }
  fold.exact(heap_.size());
  std::make_heap(heap_.begin(), heap_.end());
}

}  // namespace genie::twin
