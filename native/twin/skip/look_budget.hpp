// The budget of looks at a simulation's state: they may take a small part of the time of its events.
#pragma once
#include <algorithm>
#include <cstdint>
#include <utility>

namespace genie::twin {

class LookBudget {
 public:
  // The simulation has come to so many events. Returns those since the last call.
  std::uint64_t earn(std::uint64_t events) {
    const std::uint64_t played = events - std::exchange(events_, events);
    credit_ += played / (kEventsPerWord << std::min(in_vain_ / kVainEach, kVainDoublingsMost));
    return played;
  }
  bool has(std::uint64_t words) const { return credit_ >= words; }
  // After so many periods, each of `events`, a look at so many words is paid for.
  std::uint64_t periods_until(std::uint64_t words, std::uint64_t events) const {
    return (words - std::min(words, credit_)) * kEventsPerWord / events;
  }
  void pay(std::uint64_t words) { credit_ -= std::min(credit_, words); }
  // For a look at some ranks alone.
  void pay_for_ranks(std::uint64_t words) {
    rank_cost_ = words;
    pay(words);
  }
  // A look at some ranks has found nothing.
  void note_vain() { ++in_vain_; }
  void forget_vain() { in_vain_ = 0; }

  // Of the latest look at some ranks, and of the latest state of all; in words.
  std::uint64_t rank_cost() const { return rank_cost_; }
  std::uint64_t state_words() const { return state_words_; }
  void set_state_words(std::uint64_t words) { state_words_ = words; }

 private:
  static constexpr std::uint64_t kEventsPerWord = 3;      // looks take about 2 % of the time
  static constexpr std::uint64_t kFirstCredit = 1 << 20;  // words
  // Looks since something was found, after which they may take half as much time, and at most how often.
  static constexpr std::uint32_t kVainEach = 64, kVainDoublingsMost = 3;

  std::uint64_t events_ = 0;             // that credit has been given for
  std::uint64_t credit_ = kFirstCredit;  // words that may be taken down
  std::uint64_t rank_cost_ = 0, state_words_ = 0;
  std::uint32_t in_vain_ = 0;  // looks at some ranks, since something was found
};

}  // namespace genie::twin
