#include "recorder/op_info.h"

#include <algorithm>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <unordered_set>

namespace fuse {

namespace {

std::unordered_map<std::string, std::vector<int>>& hidden_writes() {
  static auto* table = new std::unordered_map<std::string, std::vector<int>>;
  return *table;
}

std::unordered_set<std::string>& by_element() {
  static auto* names = new std::unordered_set<std::string>;
  return *names;
}

// Arguments that are integers in the schema, and neither a size, a dimension nor a choice: they may
// vary as a step size does.
bool is_value(const std::string& base, const std::string& argument) {
  static const auto* table = new std::unordered_map<std::string, std::vector<std::string>>{
      {"avg_pool2d", {"divisor_override"}},
      {"avg_pool2d_backward", {"divisor_override"}},
      {"avg_pool3d", {"divisor_override"}},
      {"avg_pool3d_backward", {"divisor_override"}},
      {"kthvalue", {"k"}},
      {"nll_loss2d_backward", {"ignore_index"}},
      {"nll_loss2d_forward", {"ignore_index"}},
      {"nll_loss_backward", {"ignore_index"}},
      {"nll_loss_forward", {"ignore_index"}},
      {"randint", {"low", "high"}},
      {"randint_like", {"low", "high"}},
      {"random", {"from", "to"}},
      {"roll", {"shifts"}},
      {"round", {"decimals"}},
      {"select_backward", {"index"}},
      {"select_scatter", {"index"}},
      {"slice_backward", {"start", "end"}},
      {"tril", {"diagonal"}},
      {"triu", {"diagonal"}}};
  const auto found = table->find(base);
  return found != table->end() &&
      std::find(found->second.begin(), found->second.end(), argument) != found->second.end();
}

// "bernoulli" of "bernoulli_.float".
std::string base_of(const std::string& name) {
  std::string base = name.substr(0, name.find('.'));
  if (base.back() == '_') {
    base.pop_back();
  }
  return base;
}

OpInfo::Kind kind_of(const std::string& base, const c10::Argument& argument) {
  if (is_value(base, argument.name())) {
    return OpInfo::Kind::Scalar;
  }
  c10::TypePtr type = argument.real_type();
  if (auto optional = type->cast<c10::OptionalType>()) {
    type = optional->getElementType();
  }
  if (auto list = type->cast<c10::ListType>()) {
    type = list->getElementType();
  }
  switch (type->kind()) {
    case c10::TypeKind::FloatType: // an optimizer's step size, a dropout's probability
    case c10::TypeKind::NumberType: return OpInfo::Kind::Scalar;
    case c10::TypeKind::ScalarTypeType: return OpInfo::Kind::Dtype;
    default: return OpInfo::Kind::Value;
  }
}

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

int aliased_argument(const c10::FunctionSchema& schema, const c10::Argument& result) {
  if (result.alias_info() == nullptr) {
    return -1;
  }
  const auto& sets = result.alias_info()->beforeSets();
  for (size_t index = 0; index < schema.arguments().size(); ++index) {
    const auto* alias = schema.arguments()[index].alias_info();
    if (alias != nullptr && alias->isWrite() && alias->beforeSets() == sets) {
      return static_cast<int>(index);
    }
  }
  return -1;
}

bool takes_indices(const std::string& name) {
  return name.rfind("index", 0) == 0 || name.rfind("_index_put", 0) == 0 ||
      name.rfind("_unsafe_index", 0) == 0 || name.rfind("_unsafe_masked_index", 0) == 0;
}

OpInfo::Draws draws_of(const std::string& name) {
  if (name == "multinomial") {
    return OpInfo::Draws::Samples;
  }
  if (name == "randperm.generator" || name == "randperm.generator_out") {
    return OpInfo::Draws::Permutation;
  }
  if (name == "native_dropout") {
    return OpInfo::Draws::Dropout;
  }
  if (name == "bernoulli.p" || name == "bernoulli_.float") {
    return OpInfo::Draws::Chance;
  }
  return by_element().count(base_of(name)) != 0 ? OpInfo::Draws::Elements : OpInfo::Draws::No;
}

OpInfo* build(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  auto* info = new OpInfo;
  info->name = schema.name();
  if (info->name.rfind("aten::", 0) == 0) {
    info->name = info->name.substr(6);
  }
  if (!schema.overload_name().empty()) {
    info->name += "." + schema.overload_name();
  }
  for (const auto& argument : schema.arguments()) {
    const int place = static_cast<int>(info->kinds.size());
    if (argument.name() == "generator") {
      info->generator = place;
    } else if (argument.name() == "size") {
      info->size = place;
    }
    info->kinds.push_back(kind_of(base_of(info->name), argument));
    info->written.push_back(is_written(argument));
    info->nonfunctional |= info->written.back();
  }
  auto hidden = hidden_writes().find(info->name);
  if (hidden != hidden_writes().end()) {
    for (int index : hidden->second) {
      info->written[static_cast<size_t>(index)] = true;
    }
  }
  info->writes = std::find(info->written.begin(), info->written.end(), true) != info->written.end();
  info->indexes = takes_indices(info->name);
  info->steps = info->writes && info->name.rfind("_fused_", 0) == 0;
  info->draws = draws_of(info->name);
  for (const auto& result : schema.returns()) {
    OpInfo::Return entry;
    entry.alias = aliased_argument(schema, result);
    entry.list = result.type()->kind() == c10::TypeKind::ListType;
    info->returns.push_back(entry);
  }
  return info;
}

} // namespace

const OpInfo& OpInfo::of(const c10::OperatorHandle& op) {
  // Keyed by the schema's address, which the dispatcher keeps for the life of the operator.
  // About 15 ns: a shared lock and one probe.
  static auto* table = new std::unordered_map<const void*, std::unique_ptr<OpInfo>>;
  static auto* mutex = new std::shared_mutex;
  const void* key = &op.schema();
  {
    std::shared_lock<std::shared_mutex> guard(*mutex);
    auto found = table->find(key);
    if (found != table->end()) {
      return *found->second;
    }
  }
  std::unique_lock<std::shared_mutex> guard(*mutex);
  std::unique_ptr<OpInfo>& entry = (*table)[key];
  if (!entry) {
    entry.reset(build(op));
  }
  return *entry;
}

void OpInfo::declare_hidden_writes(const std::string& name, const std::vector<int>& arguments) {
  hidden_writes()[name] = arguments;
}

void OpInfo::declare_draws(const std::vector<std::string>& names) {
  by_element().insert(names.begin(), names.end());
}

} // namespace fuse
