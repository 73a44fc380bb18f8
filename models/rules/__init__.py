"""The rules of the policy, a module for each: scalar form, vectorised form and sentence."""
